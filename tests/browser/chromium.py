"""Debian's Chromium, as tests and benches start it: as root, and asking nobody on the network for anything."""

from __future__ import annotations

import shutil

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def executable() -> str | None:
    """The browser's path; None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")
