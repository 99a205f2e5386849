"""What compilers leave in a cache folder, and how a file there is known to be whole."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

_CHUNK = 1 << 20
_CONTENT_NAME_LENGTH = 51
"""Characters that Inductor keeps of a content's hash in base 32."""


@dataclass(frozen=True)
class GraphFiles:
    """A target's cache folder: what counts as a graph, what is not for others, and what changes a graph besides its key."""

    copy_to: str
    """Folder that the printed copy command makes."""
    graph: tuple[str, ...]
    """Patterns of names that are one compiled graph each; `*` also spans folders."""
    fault: Callable[[str, Path], str]
    """(name, file) -> why the file is not whole, as a clause, or ""."""
    left_out: tuple[str, ...] = ("*.lock", "*.tmp", "*.partial")
    """Patterns of files that mean something to this machine alone."""
    locks: tuple[str, ...] = ("*.lock",)
    flags: tuple[str, ...] = ()
    """Patterns of environment variables that change what is compiled."""

    def is_graph(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.graph)

    def is_left_out(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.left_out)

    def is_lock(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.locks)

    def flags_of(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables that are set and change what is compiled."""
        return {name: value for name, value in sorted(environment.items()) if any(fnmatchcase(name, flag) for flag in self.flags)}


def neff_fault(_: str, path: Path) -> str:
    """A NEFF has a header of its own; all that is known of a foreign one is that it is not empty."""
    return "" if path.stat().st_size else "is empty"


def inductor_fault(name: str, path: Path) -> str:
    """Inductor names an entry by its content's hash, and a library tells how long it is."""
    if not path.stat().st_size:
        return "is empty"
    if path.suffix == ".so":
        return "" if _library_is_whole(path) else "is a truncated library"
    folders = name.split("/")[:-1]
    if {"fxgraph", "aotautograd"} & set(folders) and path.name != _content_name(path):
        return "does not hold what its name promises"
    return ""


def _content_name(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return base64.b32encode(digest.digest())[:_CONTENT_NAME_LENGTH].decode().lower()


def _library_is_whole(path: Path) -> bool:
    """The table of sections ends an ELF file, and the header says where that table is."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(64)
    if len(head) < 64 or head[:4] != b"\x7fELF" or head[4] != 2:
        return False
    (offset,) = struct.unpack_from("<Q", head, 0x28)
    entry_size, entries = struct.unpack_from("<HH", head, 0x3A)
    return bool(offset) and offset + entry_size * entries <= size


CACHES_ON = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}
"""Inductor's caches of whole graphs are on by default; a user's environment must not switch them off under a test."""

_ISA = re.compile(
    r"(s?sse|avx|fma|bmi|amx|f16c|v?aes|v?pclmul|sha|popcnt|abm|movbe|adx|gfni|xsave|cx16|rdrnd|rdseed|fsgsbase"
    r"|asimd|sve|sme|bf16|i8mm|fp|crc32|atomics|dotprod)\w*"
)


def processor(architecture: str, flags: Iterable[str]) -> str:
    """A printable name of what a native build for this processor may use: `x86_64-avx512-1f2e3d4c`.

    Libraries that were built for one processor may end another one's process, so graphs never cross this name.
    """
    known = sorted({flag for flag in flags if _ISA.fullmatch(flag)})
    level = next((level for level in ("amx", "avx512", "avx2", "sve", "asimd") if any(flag.startswith(level) for flag in known)), "plain")
    return f"{architecture or 'unknown'}-{level}-{hashlib.sha256(' '.join(known).encode()).hexdigest()[:8]}"
