"""The real app on made-up data, and a real browser: one of each for all tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import published
from tests.browser.chromium import ARGUMENTS, executable


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


def wait_for(address: str, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert process.poll() is None, "the server ended"
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"no answer from {address}")


def started(argv: list[str], folder: Path, **changes: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "GRADIO_TEMP_DIR": str(folder / "gradio"), **changes}
    with (folder / "server.log").open("wb") as log:
        return subprocess.Popen(argv, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)


def stopped(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("published")
    published.publish(root)
    return root


@pytest.fixture(scope="module")
def server(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `doesitrun serve`, without a trailing slash."""
    pytest.importorskip("gradio", reason="SKIPPED: Gradio is not installed (pip install 'doesitrun[serve]')")
    port = free_port()
    argv = [sys.executable, "-m", "doesitrun", "serve", "--data", str(data), "--port", str(port)]
    process = started(argv, tmp_path_factory.mktemp("server"))
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address, process)
        yield address
    finally:
        stopped(process)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    chromium = executable()
    if chromium is None:
        pytest.skip("SKIPPED: there is no chromium (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="SKIPPED: Playwright is not installed")
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield made
        made.close()


@pytest.fixture
def page(browser: Any, server: str) -> Iterator[Any]:
    """A fresh page of a fresh visitor; an error in its scripts fails the test."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, permissions=["clipboard-read", "clipboard-write"], base_url=server
    )
    made = context.new_page()
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    made.on("dialog", lambda dialog: (errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    yield made
    context.close()
    assert errors == []
