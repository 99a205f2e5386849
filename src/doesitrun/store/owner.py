"""Which process runs an attempt, and whether it still lives."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from doesitrun.errors import WorkspaceError
from doesitrun.files import reaching

_CLOCK_S = 10.0
"""A process's start is told by the wall clock, which may be set while it runs. A number is not given to another
process that soon, and taking a dead owner for a live one only leaves its row pending for longer."""


class Life(StrEnum):
    """What can be said of an owner."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


def this_process() -> dict[str, Any]:
    """What owner.json holds: host, pid, and when the process started, in seconds since 1970."""
    import psutil

    return {"host": socket.gethostname(), "pid": os.getpid(), "started_s": psutil.Process().create_time()}


def owner_life(path: Path) -> tuple[Life, str]:
    """Whether the owner that the file names lives, and a sentence on why that is not known.

    An attempt without owner.json has no owner that could come back: dead.
    """
    folder = path.parent
    try:
        owner = json.loads(path.read_bytes())
        host, pid, started_s = str(owner["host"]), int(owner["pid"]), float(owner["started_s"])
    except FileNotFoundError:
        return Life.DEAD, ""
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return Life.UNKNOWN, f"{path} cannot be read, so {folder} stays pending: delete the folder if nothing runs there."
    if host != socket.gethostname():
        return Life.UNKNOWN, f"{folder} was started on {host!r} and stays pending: delete the folder if nothing runs there."
    return (Life.ALIVE if _lives(pid, started_s) else Life.DEAD), ""


def _lives(pid: int, started_s: float) -> bool:
    import psutil

    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - started_s) < _CLOCK_S
    except psutil.AccessDenied:
        return True
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return False


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Holds the file for this process. Raises WorkspaceError, with who holds it, when another one does, or when it cannot be written.

    The kernel drops the hold when the process dies, however that comes.
    """
    with reaching(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a+b")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"{lock.parent} is in use by {_holder(lock)}: wait for its end, or pass another workspace with -w."
            raise WorkspaceError(message) from None
        file.truncate(0)
        file.write(json.dumps(this_process()).encode())
        file.flush()
        yield


def _holder(lock: Path) -> str:
    try:
        owner = json.loads(lock.read_bytes())
        since = datetime.fromtimestamp(float(owner["started_s"]), UTC)
        return f"process {int(owner['pid'])} on {owner['host']}, which started at {since:%Y-%m-%d %H:%M} UTC"
    except (OSError, ValueError, TypeError, KeyError, OverflowError):  # it has the lock, and is just writing who it is
        return "another campaign"
