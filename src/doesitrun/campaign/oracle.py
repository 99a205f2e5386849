"""The layout oracle: the same layout, eager, on CPU ranks with the same library says who is at fault for wrong numbers.

Ranks of a CPU that are wrong as well convict the library (its sharding rules, or its code for them); if they are right,
it is the target: its compiler, runtime or device. It runs in a folder of the attempt and has no row of its own.
On the CPU target itself, whose run was compiled, the eager oracle tells the compiler from the library.
"""

from __future__ import annotations

import os
from pathlib import Path

from doesitrun import isolate, script, verify
from doesitrun.campaign import evidence, witnesses
from doesitrun.campaign.asking import limits
from doesitrun.campaign.context import Context, Progress
from doesitrun.campaign.planning import pins
from doesitrun.errors import DoesItRunError
from doesitrun.explain import explain
from doesitrun.files import write_whole
from doesitrun.outcomes import Reason
from doesitrun.records import Blame, Plan
from doesitrun.targets import ORACLE, TARGETS
from doesitrun.tasks import TASKS
from doesitrun.verify import Verdict

NUMBERS = frozenset({Reason.WRONG_NUMBERS, Reason.NAN_LOGITS, Reason.RANKS_DISAGREE})
RANK_BYTES = 700_000_000
"""What a rank takes besides its weights: Python with torch."""


def is_asked(plan: Plan, found: Verdict) -> bool:
    """True when a sharded run has wrong numbers, whose cause may be the layout."""
    return plan.cores > 1 and found.outcome.reason in NUMBERS


def word(plan: Plan, folder: Path, context: Context) -> tuple[Blame | None, str]:
    """Who is at fault, and the sentence that says why; None where the oracle could not be asked."""
    needed = plan.cores * (plan.rank_bytes.weights * 5 // 4 + RANK_BYTES)
    if needed > context.stack.host_memory_bytes:
        return None, "The same layout cannot be tried on CPU ranks: the host's memory does not hold it."
    context.seat.leave_device(needed)
    own = verify.oracle_plan(plan)
    try:
        return _asked(own, folder / evidence.ORACLE, context)
    except (DoesItRunError, OSError) as error:
        return None, f"The same layout could not be tried on CPU ranks ({error})."


def _asked(plan: Plan, folder: Path, context: Context) -> tuple[Blame | None, str]:
    folder.mkdir()
    write_whole(folder / "run.py", script.render(plan, TASKS[plan.task], pins(context.stack), eager=True).encode())
    environment = isolate.child_environment(os.environ, TARGETS[ORACLE].environment(str(folder / "graphs")), keep_token=plan.gated)
    argv = [context.stack.python, "run.py", "--report", "."]
    ended = context.seat.on_host(
        argv, folder, environment, limits(context), lambda _, elapsed_s: context.watch(Progress("oracle", elapsed_s))
    )
    result = isolate.read_result(folder)
    outcome = explain(ended, result, isolate.read_log(folder), plan.target)
    if outcome is not None or result is None or not verify.is_usable(plan, result):
        why = f" ({outcome.detail or outcome.reason})" if outcome is not None else ""
        return None, f"The same layout could not be tried on CPU ranks{why}."
    answer, _ = witnesses.reference(plan, result, None, context)
    if answer is None:
        return None, "The same layout on CPU ranks has no reference to be compared with: the host's memory does not hold it."
    evidence.keep(folder, evidence.REFERENCE, answer)
    return verify.blame(plan, result, answer)
