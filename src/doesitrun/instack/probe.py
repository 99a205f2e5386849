"""What is on this machine and in this Python environment, as plain facts, without importing torch.

Usage: python probe.py REQUEST.json ANSWER.json. The request is empty; the answer holds `python`, `os`,
`cpu_count`, `host_memory_bytes`, `distributions` (name -> version), `device_files`, `gpus` (model names),
`kernel_modules` (name -> version), `product` (the machine's type, as the firmware tells it), `architecture` and
`cpu_flags` (what the processor can do).
"""

import json
import os
import platform
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def facts() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "os": _os(),
        "cpu_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "host_memory_bytes": _host_memory_bytes(),
        "distributions": {d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions() if d.metadata["Name"]},
        "device_files": sorted(str(path) for path in Path("/dev").glob("neuron[0-9]*")),
        "gpus": _gpus(),
        "kernel_modules": {name: text for name in ("neuron", "nvidia") if (text := _read(f"/sys/module/{name}/version"))},
        "product": _read("/sys/devices/virtual/dmi/id/product_name"),
        "architecture": platform.machine(),
        "cpu_flags": _cpu_flags(),
    }


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _os() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        name = platform.platform(terse=True)
    return f"{name}, {' '.join(platform.libc_ver())}".strip(", ")


def _host_memory_bytes() -> int:
    """The host's memory, or what a container may use of it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [int(text) for path in _CGROUP_LIMITS if (text := _read(path)).isdigit()]
    return min([total, *(limit for limit in limits if limit > 0)])


def _cpu_flags() -> list[str]:
    """The features of the first processor, as the kernel names them."""
    lines = (line.partition(":") for line in _read("/proc/cpuinfo").splitlines())
    return next((value.split() for name, _, value in lines if name.strip() in ("flags", "Features")), [])


def _gpus() -> list[str]:
    """Model names from NVIDIA's kernel driver, one per GPU."""
    texts = [_read(path) for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))]
    lines = [line for text in texts for line in text.splitlines() if line.startswith("Model:")]
    return [line.partition(":")[2].strip() for line in lines]


if __name__ == "__main__":
    answer = Path(sys.argv[2])
    partial = answer.with_suffix(".partial")
    partial.write_text(json.dumps(facts()))
    partial.replace(answer)
