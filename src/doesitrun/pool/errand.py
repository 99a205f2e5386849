"""A child run on another machine: sent as bytes, run in a folder of its own there, and sent back as bytes."""

from __future__ import annotations

import os
import queue
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath

from doesitrun import __version__, isolate
from doesitrun.environment import NO_TOKEN, child_environment
from doesitrun.errors import IsolationError
from doesitrun.isolate import Ended, Limits
from doesitrun.outcomes import Stage

LOOK_S = 0.5
FILE_BYTES = 64_000_000
"""A larger file that a child left does not travel; logs and results are far below."""
GIVEN_BY_RAY = ("OMP_NUM_THREADS", "NEURON_RT_VISIBLE_CORES", "CUDA_VISIBLE_DEVICES")
"""What Ray sets in its workers for their own share of the machine; the child's is said by its errand."""


@dataclass(frozen=True)
class Errand:
    """One child as data: what `isolate.run` is given, with paths of the sender's, and the files of its folder."""

    argv: tuple[str, ...]
    folder: str
    files: Mapping[str, bytes]
    variables: Mapping[str, str]
    """What the child's environment has beyond that of the machine it runs on."""
    keep_token: bool
    limits: Limits
    kept: str | None
    """A folder of the sender's that variables point into; there it is one that stays on the machine."""
    package: str
    version: str


@dataclass(frozen=True)
class Returned:
    """How the child ended, and the files that it left or changed."""

    ended: Ended
    files: Mapping[str, bytes]


def pack(argv: Sequence[str], folder: Path, env: Mapping[str, str], limits: Limits, kept: Path | None) -> Errand:
    """The errand for a call of `isolate.run`. Raises OSError when the folder cannot be read."""
    return Errand(
        argv=tuple(argv),
        folder=str(folder.resolve()),
        files=_read(folder),
        variables={name: value for name, value in env.items() if os.environ.get(name) != value},
        keep_token=not NO_TOKEN.items() <= env.items(),
        limits=limits,
        kept=None if kept is None else str(kept),
        package=_package(),
        version=__version__,
    )


def unpack(returned: Returned, folder: Path) -> Ended:
    """Writes what came back into the folder."""
    for name, data in returned.files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            continue
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return returned.ended


def perform(errand: Errand) -> Iterator[Stage | Returned]:
    """Runs the errand on this machine: yields each stage as it begins, and at last what came of it.

    Raises IsolationError where the child cannot be started. Leaving it early, by whatever, kills the child.
    """
    if errand.version != __version__:
        message = f"This node has doesitrun {__version__}, but the campaign {errand.version}: install the same on all nodes."
        raise IsolationError(message)
    with _folder() as folder:
        for name, data in errand.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        child = _Child(errand, folder)
        child.start()
        try:
            yield from child.told()
        finally:
            child.stop()
        if child.problem is not None:
            raise child.problem
        assert child.ended is not None
        files = {name: data for name, data in _read(folder).items() if errand.files.get(name) != data}
        yield Returned(child.ended, files)


class _Child(threading.Thread):
    """The child's own thread, so that its stages can be told meanwhile."""

    def __init__(self, errand: Errand, folder: Path) -> None:
        super().__init__(daemon=True)
        self.errand, self.folder = errand, folder
        self.stages: queue.SimpleQueue[Stage | None] = queue.SimpleQueue()
        """Each stage as it begins; None at the end."""
        self.last = Stage.START  # which its sender takes for granted
        self.is_unwanted = False
        self.ended: Ended | None = None
        self.problem: BaseException | None = None

    def run(self) -> None:
        moves = _moves(self.errand, self.folder)
        argv = [_moved(word, moves) for word in self.errand.argv]
        variables = {name: _moved(value, moves) for name, value in self.errand.variables.items()}
        own = {name: value for name, value in os.environ.items() if name not in GIVEN_BY_RAY and not name.startswith("RAY_")}
        env = child_environment(own, variables, keep_token=self.errand.keep_token)
        try:
            self.ended = isolate.run(argv, self.folder, env, self.errand.limits, self.look)
        except BaseException as error:  # noqa: BLE001  told by the thread that asked for the child
            self.problem = error
        self.stages.put(None)

    def look(self, stage: Stage, _: float) -> None:
        if self.is_unwanted:
            raise KeyboardInterrupt
        if stage is not self.last:
            self.last = stage
            self.stages.put(stage)

    def told(self) -> Iterator[Stage]:
        """The stages as they begin, until the child has ended."""
        while True:
            try:
                stage = self.stages.get(timeout=LOOK_S)  # Ray cancels by an exception, which nothing wakes up for
            except queue.Empty:
                continue
            if stage is None:
                return
            yield stage

    def stop(self) -> None:
        """Returns when the child and all it started are gone."""
        self.is_unwanted = True
        self.join(isolate.PATIENCE_S)


# ---------------------------------------------------------------------------------- folders
@contextmanager
def _folder() -> Iterator[Path]:
    """A new folder on this machine, gone afterwards; those of dead workers go, too."""
    parent = Path(tempfile.gettempdir()) / f"doesitrun-errands-{os.getuid()}"
    parent.mkdir(mode=0o700, exist_ok=True)
    for old in parent.iterdir():
        if not Path(f"/proc/{old.name.partition('-')[0]}").exists():
            shutil.rmtree(old, ignore_errors=True)
    place = parent / f"{os.getpid()}-{secrets.token_hex(6)}"
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _read(folder: Path) -> dict[str, bytes]:
    """The plain files of a folder by their names in it; links and what is too large to travel are left out."""
    found = {}
    for path in sorted(folder.rglob("*")) if folder.exists() else ():
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= FILE_BYTES:
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def _package() -> str:
    return str(resources.files("doesitrun"))


def _moves(errand: Errand, folder: Path) -> list[tuple[str, str]]:
    """The sender's folders, and what stands for them here."""
    moves = [(errand.folder, str(folder)), (errand.package, _package())]
    if errand.kept is not None:
        moves.append((errand.kept, str(Path.home() / ".cache" / "doesitrun" / "graphs")))
    return moves


def _moved(word: str, moves: Sequence[tuple[str, str]]) -> str:
    for old, new in moves:
        if word == old or word.startswith(f"{old}/"):
            return new + word[len(old) :]
    return word
