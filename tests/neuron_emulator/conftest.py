"""Child processes on the emulated device. The first one builds its C++ part (about 10 s); later ones find it built."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SITE = HERE / "site"
_FROM_THE_HOST = ("PATH", "HOME", "CXX", "NEURON_EMU_CACHE", "LD_LIBRARY_PATH")

ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
Child = Callable[..., subprocess.CompletedProcess]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    missing += [] if shutil.which(os.environ.get("CXX", "g++")) else ["g++"]
    for item in items:
        if missing and HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"the emulated device needs {', '.join(missing)}"))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a child: a machine and a cache of its own, nothing of the host's Neuron variables."""
    machine = tmp_path / "machine"
    machine.mkdir()
    own = {
        "PYTHONPATH": str(SITE),
        "NEURON_EMU_MACHINE": str(machine),
        "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "neff"),
        "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": str(tmp_path / "local"),
    }
    return {name: os.environ[name] for name in _FROM_THE_HOST if name in os.environ} | own


@pytest.fixture
def child(environment: dict[str, str]) -> Child:
    """Runs Python code (or a program's path) in a process of its own; warnings there are errors unless told otherwise."""

    def run(code: str | Path, *args: str, warnings: str = "error", **variables: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-W", warnings, *([str(code)] if isinstance(code, Path) else ["-c", code]), *args]
        return subprocess.run(command, env=environment | variables, capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture
def ranks(environment: dict[str, str]) -> Callable[..., list[subprocess.CompletedProcess]]:
    """Runs the same code once per rank of a group, all at the same time."""

    def run(code: str | Path, size: int, **variables: str) -> list[subprocess.CompletedProcess]:
        command = [sys.executable, *([str(code)] if isinstance(code, Path) else ["-c", code])]
        port = str(_free_port())
        processes = []
        for rank in map(str, range(size)):
            group = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
            own = environment | group | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} | variables
            processes.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        try:
            outputs = [process.communicate(timeout=300) for process in processes]
        finally:
            for process in processes:
                process.kill()
        return [
            subprocess.CompletedProcess(command, process.returncode, *output) for process, output in zip(processes, outputs, strict=True)
        ]

    return run


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
