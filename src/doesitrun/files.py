"""Files that are whole or absent, and folders that fail in one sentence."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from doesitrun.errors import WorkspaceError

_TEMPORARY = f".{'[0-9a-f]' * 12}.tmp"

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space, or use a workspace on another disk",
    errno.EDQUOT: "your disk quota is used up: free some space, or use a workspace on another disk",
    errno.EACCES: "permission is denied: give yourself the right to it, or use another workspace",
    errno.EPERM: "permission is denied: give yourself the right to it, or use another workspace",
    errno.EROFS: "the disk is mounted read-only: use a workspace on another disk",
    errno.ENOTDIR: "a part of its path is a file, not a folder: move that file away, or use another workspace",
    errno.EISDIR: "a folder lies where a file belongs: move that folder away, then try again",
    errno.ENAMETOOLONG: "its path is too long for the disk: use a workspace with a shorter path",
    errno.ENOLCK: "the disk cannot lock files: use a workspace on a local disk",
    errno.EEXIST: "a file lies where a folder belongs: move that file away, or use another workspace",
}


@contextmanager
def reaching(path: Path) -> Iterator[None]:
    """Turns an OSError into a WorkspaceError: one sentence that names the path and ends with the way out."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, f"{error.strerror or error}: mend that, or use another workspace")
        message = f"Cannot use {error.filename or path}: {advice}."
        raise WorkspaceError(message) from error


def write_whole(path: Path, data: bytes) -> None:
    """Puts `data` at `path` in one step: at any moment a reader, or a kill, finds the old file or the new one.

    A file of the same folder is written, synced to the disk and renamed. Raises OSError.
    """
    temporary = path.with_name(f".{secrets.token_hex(6)}.tmp")
    try:
        # os.open, not mkstemp: a published file has the mode that the user's umask gives.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sweep(folder: Path) -> None:
    """Removes what killed calls of `write_whole` left in the folder. No other process may be writing there."""
    for path in folder.glob(_TEMPORARY):
        with suppress(OSError):
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Makes a rename in the folder outlast a loss of power, where the disk can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
