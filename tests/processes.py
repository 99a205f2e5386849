"""What runs on this machine on behalf of a test."""

from __future__ import annotations

from pathlib import Path

import psutil


def processes_in(folder: Path) -> list[psutil.Process]:
    """Processes whose working directory lies under the folder: children of attempts and of errands, and what they started."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
