"""What tests of several folders share: where things are, and a clean environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.hub_server import Hub, serve

# Machines are shared: a slow example says nothing of the code.
# DOESITRUN_EXAMPLES=1000 make test-fast looks harder.
settings.register_profile("asked", deadline=None, max_examples=int(os.environ.get("DOESITRUN_EXAMPLES", "40")))
settings.load_profile("asked")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what runs in its background, and children inherit it; tests that press Ctrl-C need it to work.
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = REPOSITORY / ".doesitrun" / "tests"
"""Kept between runs: the demo model and compiled graphs. Deleting it is safe."""


def shared_data() -> Path:
    """The folder of real configs, which is not part of the repository; tests that need it skip without it."""
    folder = Path(os.environ.get("DOESITRUN_SHARED", REPOSITORY.parent / "shared")) / "data" / "hub-corpus"
    if not folder.is_dir():
        pytest.skip(f"SKIPPED: the corpus of real configs is not at {folder}")
    return folder


@pytest.fixture
def hub() -> Iterator[Hub]:
    """An empty stand-in Hub on loopback."""
    with serve() as running:
        yield running


@pytest.fixture
def real_client(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The stand-in Hub, which the real client in this very process asks, with the token and a cache of its own."""
    from huggingface_hub import constants

    for name, value in hub.environment(tmp_path / "hf").items():
        monkeypatch.setenv(name, value)
    # Read from the environment when it was imported, maybe long ago.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return hub
