"""Which graphs can be used where: the compiler, the framework and the machine that they were compiled with; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Self

from doesitrun.records import Row, Stack
from doesitrun.targets import TARGETS

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,119}")
_OTHER = re.compile(r"[^A-Za-z0-9._+-]")


@dataclass(frozen=True, order=True)
class Pair:
    """Versions and machine whose graphs are interchangeable. Its text is a folder of every store."""

    compiler: str
    """Compiler and its version: neuronx-cc-2.28.7631.0."""
    framework: str
    """What calls it, and its version: torch-neuronx-2.14.3.0.1."""
    machine: str
    """Target, and what the code is made for: neuron-trn2."""

    def __str__(self) -> str:
        return f"{self.compiler}/{self.framework}/{self.machine}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The pair that `str` gave; None for any other text."""
        parts = text.split("/")
        if len(parts) != 3 or not all(_PART.fullmatch(part) and part not in (".", "..") for part in parts):
            return None
        return cls(*parts)

    @property
    def target(self) -> str:
        return self.machine.partition("-")[0]


def pair_of(stack: Stack) -> Pair:
    """The pair that this stack compiles for."""
    compiler, framework = _versions(stack.target, stack.compiler, stack.compiler_version, stack.versions)
    return Pair(compiler, framework, _plain(f"{stack.target}-{stack.machine or stack.device or 'unknown'}"))


def is_of_pair(row: Row, pair: Pair) -> bool:
    """True where the row's versions are the pair's. A row does not tell the machine."""
    if row.target != pair.target or row.compiler is None:
        return False
    columns = ("torch", *TARGETS[pair.target].VERSION_COLUMNS)
    versions = {column: value for column in columns if (value := getattr(row, column)) is not None}
    return _versions(row.target, row.compiler, row.compiler_version or "", versions) == (pair.compiler, pair.framework)


def _versions(target: str, compiler: str, version: str, versions: Mapping[str, str]) -> tuple[str, str]:
    own = [column for column, name in TARGETS[target].VERSION_COLUMNS.items() if name != compiler]
    framework = "_".join(f"{name.replace('_', '-')}-{versions[name]}" for name in own or ["torch"] if name in versions)
    return _plain(f"{compiler}-{version or 'unknown'}"), _plain(framework or "unknown")


def _plain(part: str) -> str:
    return _OTHER.sub("_", part)[:120]


def difference(here: Pair, there: Pair) -> str:
    """How the other pair differs, as a clause; empty for the same pair."""
    told = {"the compiler is": (here.compiler, there.compiler), "the framework is": (here.framework, there.framework)}
    told["the machine is"] = (here.machine, there.machine)
    return " and ".join(f"{what} {mine} here and {theirs} there" for what, (mine, theirs) in told.items() if mine != theirs)


def nearest(wanted: Pair, offered: Iterable[Pair]) -> Pair | None:
    """The offered pair of the same target whose versions are closest; of another target only if there is none."""
    return min(offered, key=lambda pair: (_distance(wanted, pair), pair), default=None)


def _distance(a: Pair, b: Pair) -> tuple[bool, bool, list[int], list[int], bool]:
    return (
        a.target != b.target,
        _name(a.compiler) != _name(b.compiler),
        _apart(a.compiler, b.compiler),
        _apart(a.framework, b.framework),
        a.machine != b.machine,
    )


def _name(versioned: str) -> str:
    return re.split(r"-\d", versioned, maxsplit=1)[0]


def _apart(a: str, b: str) -> list[int]:
    """Differences of the numbers in two versions, the most significant first."""
    numbers = zip_longest(*([int(n) for n in re.findall(r"\d+", text)] for text in (a, b)), fillvalue=0)
    return [abs(x - y) for x, y in numbers]
