"""Plans, and why there is none."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich import box
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from doesitrun.campaign import Prepared
from doesitrun.outcomes import Reason, Result
from doesitrun.plan.explanation import Explanation, explanation, plan_line
from doesitrun.plan.outlines import Outline
from doesitrun.plan.planner import Fit
from doesitrun.records import Plan, Refusal
from doesitrun.screen.terminal import COLOURS, GB, console, fact_table, new_table, plain


def plan_json(prepared: Prepared) -> str:
    """One line of JSON: the plan, or why there is none."""
    found = prepared.plan
    identity = {"plan_id": None if isinstance(found, Refusal) else found.plan_id, "dtype": prepared.options.dtype.value}
    return json.dumps(plan_line(found, prepared.device) | identity, ensure_ascii=False)


def show_plan(prepared: Prepared) -> None:
    """A plan with every legal size and what could go wrong, or the reason why there is none."""
    found = prepared.plan
    if isinstance(found, Refusal):
        title = Text.assemble(("no plan", COLOURS[Result.EXCLUDED]), "  ", plain(found.model_id))
        facts = [
            ("why", plain(found.detail or found.reason.meaning)),
            ("reason", plain(f"{found.reason.value} ({found.reason.fault.value})")),
        ]
        parts: list[Table | Text] = [fact_table([*facts, ("advice", plain(found.reason.advice))])]
    else:
        cores = (f"{found.cores} core{'s' if found.cores > 1 else ''}", COLOURS[Result.PASS])
        title = Text.assemble(cores, f" of {found.device}  ", plain(found.model_id))
        parts = [fact_table(_plan_facts(found))]
    if prepared.checkpoint is not None and isinstance(prepared.outline, Outline):
        why = explanation(prepared.checkpoint, prepared.outline, prepared.device, prepared.task, prepared.options)
        sharded = not isinstance(found, Refusal) and found.cores > 1
        parts += [*_sizes(why.fits), *([_modules(why)] if sharded else []), *_warnings(why)]
    console().print(Panel(Group(*parts), title=title, title_align="left"))


def _plan_facts(plan: Plan) -> list[tuple[str, Text]]:
    layout = "one core" if plan.cores == 1 else f"tensor parallel {plan.tp}, expert parallel {plan.ep}"
    facts = [
        ("task", f"{plan.task}, {plan.new_tokens} tokens in {plan.dtype}"),
        ("weights", f"{plan.weights_bytes / GB:.2f} GB once loaded"),
        ("layout", layout),
        ("notes", "\n".join(plan.notes)),
        ("plan id", plan.plan_id),
    ]
    return [(name, plain(value)) for name, value in facts if value]


def _sizes(tried: Sequence[Fit]) -> list[Table | Text]:
    table = new_table("\nGB on the fullest core", ("cores", "sharded", "replicated", "experts", "KV cache", "total", "capacity", "holds"))
    # All sizes up to the first that holds, and a few more.
    first = next((place for place, fit in enumerate(tried) if fit.holds), len(tried))
    shown = tried[: first + 4]
    for fit in shown:
        rank = fit.rank_bytes
        numbers = (rank.sharded, rank.replicated, rank.expert, rank.kv_cache, rank.total)
        capacity = f"{fit.capacity_bytes / GB:.2f}" if fit.capacity_bytes else "?"
        table.add_row(str(fit.cores), *(f"{n / GB:.2f}" for n in numbers), capacity, "yes" if fit.holds else "no")
    # That a size is too small is seen from its numbers; anything else is said.
    other = [f"{fit.cores} cores: {fit.why}" for fit in shown if fit.reason not in (None, Reason.TOO_LARGE)]
    return [table, *map(plain, other)]


def _modules(why: Explanation) -> Table:
    table = Table(title="Parallel plan", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("modules", "how they are sharded", "GB", "GB per core"):
        table.add_column(name, overflow="fold", justify="right" if name.startswith("GB") else "left")
    for module in why.modules:
        if module.total_bytes < GB / 1000:
            continue  # norms and biases
        table.add_row(plain(module.pattern), plain(module.style), f"{module.total_bytes / GB:.3f}", f"{module.rank_bytes / GB:.3f}")
    return table


def _warnings(why: Explanation) -> list[Text]:
    return [Text.assemble(("beware: ", "yellow"), plain(sentence)) for sentence in why.warnings]
