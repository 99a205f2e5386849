"""Which process runs an attempt, and whether it still lives."""

from __future__ import annotations

import json
import os
import socket
from enum import StrEnum
from pathlib import Path
from typing import Any

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
