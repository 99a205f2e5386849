"""What tests of several folders share: where things are, and a clean environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = REPOSITORY / ".doesitrun" / "tests"
"""Kept between runs: the demo model and compiled graphs. Deleting it is safe."""


def shared_data() -> Path:
    """The folder of real configs, which is not part of the repository; tests that need it skip without it."""
    folder = Path(os.environ.get("DOESITRUN_SHARED", REPOSITORY.parent / "shared")) / "data" / "hub-corpus"
    if not folder.is_dir():
        pytest.skip(f"SKIPPED: the corpus of real configs is not at {folder}")
    return folder
