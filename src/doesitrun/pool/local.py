"""One machine as a pool: this one; and the seat of a job that has the machine for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from doesitrun import isolate
from doesitrun.isolate import Ended, Limits, Watch
from doesitrun.pool.schedule import Lease, Place

NAME = "here"


class LocalPool:
    """The cores and the memory of this machine."""

    def __init__(self, cores: int, host_bytes: int, helpers: int = 1) -> None:
        self._places = (Place(NAME, cores, host_bytes, helpers),)

    def places(self) -> tuple[Place, ...]:
        return self._places

    def run(self, lease: Lease, argv: Sequence[str], folder: Path, env: Mapping[str, str], limits: Limits, watch: Watch) -> Ended:  # noqa: ARG002
        return isolate.run(argv, folder, env, limits, watch)

    def expect(self, cores: Sequence[int]) -> None:
        """A machine does not grow."""

    def close(self) -> None:
        """Nothing is left open: children end with their jobs."""


class Here:
    """The seat of a single test: all cores are its own, and nobody waits for them."""

    def on_device(self, argv: Sequence[str], folder: Path, env: Mapping[str, str], limits: Limits, watch: Watch | None = None) -> Ended:
        return isolate.run(argv, folder, env, limits, watch)

    def on_host(self, argv: Sequence[str], folder: Path, env: Mapping[str, str], limits: Limits, watch: Watch | None = None) -> Ended:
        return isolate.run(argv, folder, env, limits, watch)

    def leave_device(self, host_bytes: int) -> None:
        """There is nobody to leave it to."""


HERE = Here()
