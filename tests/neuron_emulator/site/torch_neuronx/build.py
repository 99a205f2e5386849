"""Builds the C++ part once per (source, torch version, compiler); ranks that come at the same time wait for the first."""

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

import torch

_SOURCES = Path(__file__).with_name("csrc")
_FLAGS = ("-O1", "-std=c++20", "-fPIC", "-shared", "-DAT_PER_OPERATOR_HEADERS")


def _cache_folder() -> Path:
    named = os.environ.get("NEURON_EMU_CACHE")
    return Path(named) if named else Path("~/.cache/neuron_emu").expanduser()


def _key(compiler: str) -> str:
    digest = hashlib.sha256(repr((torch.__version__, compiler, _FLAGS)).encode())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(compiler: str, out: Path) -> None:
    home = Path(torch.__file__).parent
    temporary = out.with_suffix(f".{os.getpid()}")
    command = [
        compiler,
        *_FLAGS,
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-I{home}/include",
        f"-I{home}/include/torch/csrc/api/include",
        str(_SOURCES / "device.cpp"),
        "-o",
        str(temporary),
        f"-L{home}/lib",
        "-ltorch_cpu",
        "-lc10",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"Failed to import torch_neuronx C++ extensions: {compiler} ended with {done.returncode}\n{done.stderr[-4000:]}"
        raise ImportError(message)
    temporary.rename(out)


def library() -> Path:
    """The shared library, built if need be (about 10 s)."""
    compiler = os.environ.get("CXX", "g++")
    out = _cache_folder() / _key(compiler) / "libneuron_emu.so"
    if out.exists():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            _compile(compiler, out)
    return out
