"""Figures made ready for drawing: shares and histograms. Pure; the templates draw them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from doesitrun.catalog import Tally

RESULTS = (("PASS", "passed"), ("FAIL", "failed"), ("EXCLUDED", "excluded"), ("INCONCLUSIVE", "inconclusive"))


@dataclass(frozen=True)
class Part:
    """A piece of a bar."""

    result: str
    lines: int
    percent: float
    """Of the widest bar of the picture."""


@dataclass(frozen=True)
class Bar:
    name: str
    total: int
    passed_percent: float | None
    """PASS, of PASS and FAIL; None where there is neither."""
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Bin:
    """A column of a histogram: values from `low` up to, but not including, `high`."""

    low: float
    high: float
    lines: int
    percent: float
    """Of the highest column."""


def bars(tallies: Sequence[Tally]) -> tuple[Bar, ...]:
    """The tallies as bars, in their order."""
    widest = max((tally.total for tally in tallies), default=0)
    return tuple(_bar(tally, widest) for tally in tallies)


def _bar(tally: Tally, widest: int) -> Bar:
    numbers = [(result, int(getattr(tally, name))) for result, name in RESULTS]
    parts = tuple(Part(result, lines, 100 * lines / widest) for result, lines in numbers if lines)
    ran = tally.passed + tally.failed
    return Bar(tally.name, tally.total, 100 * tally.passed / ran if ran else None, parts)


WALL_EDGES = (0, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)
"""Seconds. Run times spread over three decades, so the columns get wider."""


def histogram(values: Sequence[float], edges: Sequence[float]) -> tuple[Bin, ...]:
    """How many values lie in each column; the last one is open. Empty columns at both ends are left out."""
    if not values:
        return ()
    bounds = [*edges, math.inf]
    lines = [0] * len(edges)
    for value in values:
        lines[max(0, bisect.bisect_right(edges, value) - 1)] += 1
    highest = max(lines)
    first = next(i for i, n in enumerate(lines) if n)
    last = max(i for i, n in enumerate(lines) if n)
    return tuple(Bin(bounds[i], bounds[i + 1], lines[i], 100 * lines[i] / highest) for i in range(first, last + 1))


def even_edges(values: Sequence[float], columns: int = 12) -> tuple[float, ...]:
    """Round edges from 0 that cover the values with about `columns` columns; values below a thousandth share one."""
    top = max(values, default=0.0)
    if top < 1e-3:
        return (0.0,)
    step = _round_step(top / columns)
    return tuple(round(step * i, 6) for i in range(int(top / step) + 1))


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(nice * power for nice in (1, 2, 2.5, 5, 10) if step <= nice * power * 1.000001)


def middle(values: Sequence[float]) -> float | None:
    """The median of ascending values; None of none."""
    return values[len(values) // 2] if values else None
