"""Toy jobs through the real pools: each sleeps for a given time on so many pretend cores, or fails in a given way.

Everything but the model is real: the scheduler, the pools, isolation, attempts and rows. `python -m bench.toys FILE`
runs such a campaign from a description (see `main`), so that tests can kill it.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from doesitrun import isolate
from doesitrun.campaign.events import Listen
from doesitrun.campaign.working import Item, Ran, work
from doesitrun.errors import DoesItRunError
from doesitrun.explain import explain
from doesitrun.isolate import Limits
from doesitrun.outcomes import Outcome, Reason, Result, Stage
from doesitrun.pool import LocalPool, Need, Pool, Seat
from doesitrun.records import Row
from doesitrun.rows import ended_row
from doesitrun.store.owner import only_one
from doesitrun.store.workspace import Workspace, write_row

TARGET = "cpu"
SCRIPT_BYTES = 12_000
"""A row holds its run.py; real ones have about this size."""
PATH = "/usr/bin:/bin"


@dataclass(frozen=True)
class Toy:
    """A job as data. `ends` is pass, raise, crash, hang, or stuck: it hangs before its first stage."""

    name: str
    cores: int
    seconds: float
    ends: str = "pass"
    host_bytes: int = 0

    def command(self) -> list[str]:
        end = {
            "pass": "echo '{\"tokens\": [1]}' > result.json",
            "raise": "echo 'Traceback (most recent call last):\n  File \"run.py\", line 1, in <module>\nRuntimeError: no' >&2; exit 1",
            "crash": "kill -SEGV $$",
            "hang": "sleep 600",
            "stuck": "",
        }[self.ends]
        begin = "sleep 600" if self.ends == "stuck" else "printf run > stage"
        return ["sh", "-c", f"echo $TOY_CORES > cores; {begin}; sleep {self.seconds}; {end}"]


def item(toy: Toy, workspace: Workspace, limits: Limits) -> Item:
    """The toy as a campaign's item; its row comes about as a model's does, without a verdict."""
    need = Need(toy.cores, toy.host_bytes, toy.seconds)
    return Item(toy.name, toy.name, need, partial(attempt, toy, workspace, limits), visible)


def visible(cores: Sequence[int]) -> dict[str, str]:
    return {"TOY_CORES": ",".join(map(str, cores))}


def attempt(toy: Toy, workspace: Workspace, limits: Limits, seat: Seat, _watch: object) -> Row:
    pending = Row(
        model_id=f"toys/{toy.name}",
        target=TARGET,
        compiler="none",
        compiler_version="1",
        library="toys",
        library_version="1",
        cores=toy.cores,
        run_py=(toy.name + "\n").ljust(SCRIPT_BYTES, "#"),
    )
    folder = workspace.new_attempt(toy.name, pending)
    try:
        ended = seat.on_device(toy.command(), folder, {"PATH": PATH}, limits)
    except KeyboardInterrupt:
        write_row(folder, ended_row(pending, Outcome(Stage.RUN, Reason.INTERRUPTED), now()))
        raise
    except DoesItRunError as error:
        return write_row(folder, ended_row(pending, Outcome(Stage.RUN, Reason.HARNESS_ERROR, str(error)), now()))
    outcome = explain(ended, isolate.read_result(folder), isolate.read_log(folder), TARGET) or Outcome(Stage.RUN)
    return write_row(folder, ended_row(pending, outcome, now(), wall_s=ended.wall_s))


def now() -> datetime:
    return datetime.now(UTC)


def run(toys: Sequence[Toy], workspace: Workspace, pool: Pool, listen: Listen, limits: Limits | None = None) -> dict[str, Ran]:
    """A campaign of toys: what has a settled row is not run again; the dataset is exported at the end."""
    with only_one(workspace.root / "campaign.lock"):
        workspace.settle_interrupted()
        settled = {row.plan_id for row in workspace.rows().rows if row.result not in (None, Result.INCONCLUSIVE)}
        items = [item(toy, workspace, limits or Limits()) for toy in toys if toy.name not in settled]
        try:
            return work(items, pool, listen)
        finally:
            workspace.export()


def main() -> None:
    """The file: {"root", "toys": [...], "pool": "local" or a Ray address, "cores", "resource"}."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    told = json.loads(Path(sys.argv[1]).read_text())
    toys = [Toy(**each) for each in told["toys"]]
    if told["pool"] == "local":
        pool: Pool = LocalPool(told["cores"], 1 << 40)
    else:
        from doesitrun.pool.ray import RayPool

        pool = RayPool(told["pool"], told["resource"], told["cores"])
    try:
        run(toys, Workspace(Path(told["root"])), pool, lambda _: None)
    finally:
        pool.close()
    print("complete")


if __name__ == "__main__":
    main()
