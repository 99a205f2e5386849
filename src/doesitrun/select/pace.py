"""How many core-hours a run takes: the median of past ones of its size, or a rough prior where there are none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Self

GB = 10**9
PRIOR_S = 600.0
PRIOR_S_PER_GB = 90.0
"""Without past runs: ten minutes, and a minute and a half per GB that a core holds. It is no measurement, and only orders
models by cost: runs of a compiler that takes minutes to an hour lie between the two."""
SIZES = ((10**9, "up to 1B"), (3 * 10**9, "1B to 3B"), (9 * 10**9, "3B to 9B"), (20 * 10**9, "9B to 20B"), (75 * 10**9, "20B to 75B"))
LARGEST = "over 75B"
UNKNOWN = "unknown size"


def size_of(parameters: int | None, weights_bytes: int | None) -> str:
    """The size class of a model, by its parameters, or by its bytes in a type of 16 bits."""
    count = parameters or (weights_bytes or 0) // 2
    if not count:
        return UNKNOWN
    return next((name for limit, name in SIZES if count <= limit), LARGEST)


@dataclass(frozen=True)
class Timed:
    """A past run: its weights in bytes, its cores and its seconds."""

    weights_bytes: int
    cores: int
    wall_s: float


@dataclass(frozen=True)
class Pace:
    """Median seconds of past runs on one target, by size class and number of cores."""

    seconds: dict[tuple[str, int], float] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Iterable[Timed]) -> Self:
        groups: dict[tuple[str, int], list[float]] = {}
        for run in runs:
            groups.setdefault((size_of(None, run.weights_bytes), run.cores), []).append(run.wall_s)
        return cls({key: median(values) for key, values in groups.items()})

    def core_hours(self, weights_bytes: int | None, cores: int | None) -> float:
        """Core-hours of one run, as far as can be told. A model of unknown size counts as one of 16 GB on one core."""
        held, shared = weights_bytes or 16 * GB, cores or 1
        prior = PRIOR_S + PRIOR_S_PER_GB * held / shared / GB
        return shared * self.seconds.get((size_of(None, held), shared), prior) / 3600
