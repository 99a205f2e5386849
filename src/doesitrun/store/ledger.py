"""Which files of a folder are ours, by their digests: only those are ever overwritten or removed."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from doesitrun.errors import WorkspaceError
from doesitrun.files import sweep, write_whole


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Waits until no other process holds the lock; the kernel drops it when its holder dies. Raises OSError."""
    with lock.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Kept:
    """What `put` did besides writing: names of ours that were removed, and of ours that somebody changed, so they stay."""

    removed: tuple[str, ...]
    changed: tuple[str, ...]


class Ledger:
    """The digests of the files below `root` that were, or were about to be, written. Hold `alone` while you use it."""

    def __init__(self, root: Path, path: Path) -> None:
        """Reads the note at `path`. Without one that can be read nothing is ours: files then stay as they are."""
        self._root = root
        self._path = path
        self._known = _read_note(path)

    def is_foreign(self, name: str, wanted: bytes | None = None) -> bool:
        """True when a file lies there that is neither ours nor, byte for byte, what is wanted. Raises OSError."""
        path = self._root / name
        if not _lies(path):
            return False
        found = path.read_bytes()
        return found != wanted and _digest(found) not in self._known.get(name, ())

    def refuse_foreign(self, wanted: Mapping[str, bytes]) -> None:
        """Raises WorkspaceError if a wanted file would overwrite somebody else's."""
        for name, data in wanted.items():
            if self.is_foreign(name, data):
                message = f"{self._root / name} was not written by this workspace, or was changed since: move it away, then try again."
                raise WorkspaceError(message)

    def put(self, wanted: Mapping[str, bytes]) -> Kept:
        """Writes what is wanted and removes what is ours besides. Raises OSError.

        The digests are noted before the files are written: after a kill in between no file of ours is taken for foreign.
        """
        old = {name: known for name, known in self._known.items() if name not in wanted and _lies(self._root / name)}
        changed = {name: known for name, known in old.items() if self.is_foreign(name)}
        digests = {name: _digest(data) for name, data in wanted.items()}
        self._note(old | {name: [*self._known.get(name, ()), digest] for name, digest in digests.items()})
        for name, data in wanted.items():
            _write(self._root / name, data)
        removed = sorted(old.keys() - changed.keys())
        for name in removed:
            _remove(self._root / name)
        self._note(changed | {name: [digest] for name, digest in digests.items()})
        return Kept(tuple(removed), tuple(sorted(changed)))

    def _note(self, digests: Mapping[str, list[str]]) -> None:
        noted = {name: sorted(set(known)) for name, known in sorted(digests.items())}
        _write(self._path, json.dumps(noted, indent=1).encode())


def _lies(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    if path.is_symlink() or not path.exists() or path.read_bytes() != data:
        write_whole(path, data)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    for folder in (path.parent, path.parent.parent):
        with suppress(OSError):  # a folder that still holds something stays
            folder.rmdir()


def _read_note(path: Path) -> dict[str, list[str]]:
    try:
        noted: Any = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    if not isinstance(noted, dict):
        return {}
    return {name: list(map(str, known)) for name, known in noted.items() if isinstance(known, list) and _is_below(name)}


def _is_below(name: str) -> bool:
    return not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
