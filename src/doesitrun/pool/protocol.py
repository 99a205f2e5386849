"""What a pool offers, and what a job is given: names to run a child under, wherever that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from doesitrun.errors import DoesItRunError
from doesitrun.isolate import Ended, Limits, Watch
from doesitrun.pool.schedule import Lease, Place


class PlaceLostError(DoesItRunError):
    """The machine that ran a child is gone, and the child with it; it can be run again elsewhere."""


class Pool(Protocol):
    """Machines with cores. Children are run on them with the cores that a lease names."""

    def places(self) -> tuple[Place, ...]:
        """The machines as they are now; called often, so it must be quick."""
        ...

    def run(self, lease: Lease, argv: Sequence[str], folder: Path, env: Mapping[str, str], limits: Limits, watch: Watch) -> Ended:
        """Does what `isolate.run` does, at the lease's place; what the child leaves is in `folder` afterwards.

        Raises PlaceLostError, IsolationError, and what `watch` raises, after the child was killed.
        """
        ...

    def expect(self, cores: Sequence[int]) -> None:
        """Is told the core counts of the jobs that wait, so that a cluster may grow."""
        ...

    def close(self) -> None: ...


class Seat(Protocol):
    """What a job holds while it runs. The first two have the arguments of `isolate.run`, and give and raise the same."""

    def on_device(self, argv: Sequence[str], folder: Path, env: Mapping[str, str], limits: Limits, watch: Watch | None = None) -> Ended:
        """Runs a child on the job's cores; a job that gave them up waits for cores first."""
        ...

    def on_host(self, argv: Sequence[str], folder: Path, env: Mapping[str, str], limits: Limits, watch: Watch | None = None) -> Ended:
        """Runs a child that needs no core."""
        ...

    def leave_device(self, host_bytes: int) -> None:
        """Gives the cores to others, and waits until the host has so much memory for what comes next."""
        ...
