"""A cache folder on this machine: what is in it, what is broken in it, what a run used of it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from doesitrun.graphs.manifest import Entry, is_safe_name
from doesitrun.targets.graph_files import GraphFiles

INCOMING = ".incoming-"
"""Files and folders that are on their way in begin so; nobody but who brings them looks at them."""
_CHUNK = 1 << 20
ABANDONED_S = 3600


def sha256_of(path: Path) -> str:
    """Of the file's content, in hexadecimal. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def scan(folder: Path) -> dict[str, os.stat_result]:
    """Every plain file below the folder, by name, but for those on their way in. Links are not followed; no folder is an empty one."""
    found: dict[str, os.stat_result] = {}
    waiting = [(folder, "")]
    while waiting:
        place, prefix = waiting.pop()
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(place) as items:
            for item in items:
                with suppress(FileNotFoundError):  # compilers rename and remove while we look
                    if item.name.startswith(INCOMING):
                        continue
                    if item.is_dir(follow_symlinks=False):
                        waiting.append((Path(item.path), f"{prefix}{item.name}/"))
                    elif item.is_file(follow_symlinks=False):
                        found[prefix + item.name] = item.stat(follow_symlinks=False)
    return found


def entries_of(folder: Path, files: GraphFiles) -> dict[str, os.stat_result]:
    """What of the folder may be taken into a store: no locks, nothing half-written or empty, no odd names."""
    return {name: stat for name, stat in scan(folder).items() if stat.st_size and is_safe_name(name) and not files.is_left_out(name)}


@dataclass(frozen=True)
class Removed:
    """A file that was cleaned away before a run, and why, as a clause."""

    name: str
    why: str


def clean(folder: Path, files: GraphFiles, vouched: Mapping[str, int]) -> tuple[Removed, ...]:
    """Removes broken entries, half-written ones and stale locks; returns what went. Nobody may be compiling into the folder.

    An entry with the size that `vouched` gives is taken to be whole. Raises OSError where the folder cannot be written.
    """
    removed = []
    for place in folder.glob(f"{INCOMING}*"):
        if time.time() - place.stat().st_mtime > ABANDONED_S:
            shutil.rmtree(place, ignore_errors=True)
    for name, stat in sorted(scan(folder).items()):
        path = folder / name
        if files.is_lock(name):
            why = "" if is_held(path) else "is a lock that nobody holds"
        elif files.is_left_out(name):
            why = "was never finished" if name.rpartition(".")[2] in ("tmp", "partial") else ""
        elif vouched.get(name) == stat.st_size:
            why = ""
        else:
            why = files.fault(name, path)
        if why:
            path.unlink()
            removed.append(Removed(name, why))
    return tuple(removed)


def is_held(path: Path) -> bool:
    """True while a process holds the file's lock, of either kind."""
    with suppress(OSError), path.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


# ---------------------------------------------------------------------------------- what a run uses
@dataclass
class Use:
    """A run's use of a cache folder, from before it starts until after it ended."""

    folder: Path
    files: GraphFiles
    alone: bool
    """No other run used the folder when this one began."""
    removed: tuple[Removed, ...] = ()
    before: Mapping[str, os.stat_result] = field(default_factory=dict)
    tells: bool = False
    """The disk notes when a file was last read, so that a run's entries can be told from those of other plans."""

    def used(self) -> dict[str, os.stat_result]:
        """Entries that the run, or one beside it, read or wrote; all of the folder where the disk does not tell."""
        now = entries_of(self.folder, self.files)
        if not self.tells:
            return now
        return {name: stat for name, stat in now.items() if stat.st_atime_ns > 0 or self.is_changed(name, stat)}

    def is_changed(self, name: str, stat: os.stat_result) -> bool:
        """True for an entry that the run wrote."""
        old = self.before.get(name)
        return old is None or (old.st_mtime_ns, old.st_size) != (stat.st_mtime_ns, stat.st_size)

    def new(self) -> list[str]:
        """Graphs that were not there before the run."""
        now = entries_of(self.folder, self.files)
        return sorted(name for name, stat in now.items() if self.files.is_graph(name) and name not in self.before)


@contextmanager
def using(folder: Path, lock: Path, files: GraphFiles, vouched: Mapping[str, int]) -> Iterator[Use]:
    """The folder during a run. It is cleaned first, unless another run is at work in it. Raises OSError.

    Which entries a run reads is told by their times of access, which are set back before it: disks that are mounted
    `relatime`, Linux' default, then note the next read. They are not set back under another run, so of runs that overlap
    each one's use includes the others'. Where the disk does not tell, all of the folder counts as used.
    """
    with lock.open("ab") as held:
        alone = _locked(held.fileno(), fcntl.LOCK_EX)
        removed = clean(folder, files, vouched) if alone else ()
        tells = _tells(folder) and (not alone or _set_back(folder, files))
        fcntl.flock(held, fcntl.LOCK_SH)  # one that cleans is done in a moment; runs share
        yield Use(folder, files, alone, removed, entries_of(folder, files), tells)


def _locked(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tells(folder: Path) -> bool:
    """True where the disk notes the first read after a time of access was set back."""
    probe = folder / f".{secrets.token_hex(6)}.tmp"
    try:
        probe.write_bytes(b"x")
        os.utime(probe, ns=(0, probe.stat().st_mtime_ns))
        probe.read_bytes()
        return probe.stat().st_atime_ns > 0
    except OSError:
        return False
    finally:
        with suppress(OSError):
            probe.unlink()


def _set_back(folder: Path, files: GraphFiles) -> bool:
    """Sets all times of access back; False where somebody else owns the files."""
    try:
        for name, stat in entries_of(folder, files).items():
            os.utime(folder / name, ns=(0, stat.st_mtime_ns))
    except OSError:
        return False
    return True


def hashed(use: Use, names: Mapping[str, os.stat_result], known: Mapping[str, Entry]) -> list[Entry]:
    """The entries with their hashes; one that is known and that the run did not write is not read again. Raises OSError."""
    found = []
    for name, stat in sorted(names.items()):
        earlier = known.get(name)
        if earlier is not None and earlier.size == stat.st_size and not use.is_changed(name, stat):
            found.append(earlier)
        else:
            found.append(Entry(name, stat.st_size, sha256_of(use.folder / name)))
    return found
