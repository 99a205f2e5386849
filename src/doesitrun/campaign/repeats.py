"""One model, many fresh attempts: how often it ends otherwise than it usually does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from doesitrun.campaign.context import Ask, Context
from doesitrun.campaign.trial import try_up_to
from doesitrun.outcomes import Result
from doesitrun.records import Row

Z = 1.959964
"""Of a 95 % interval."""


@dataclass(frozen=True)
class Flakes:
    """How attempts at one plan ended. INCONCLUSIVE ones say nothing of the model, so they are not counted as attempts."""

    attempts: int
    """Those that ended with a result."""
    usual: Result | None
    """What most of them ended with; None where none ended. Of equally many, the worse."""
    others: int
    """Those that ended with another result."""
    inconclusive: int

    @property
    def rate(self) -> float | None:
        """Share of attempts that ended otherwise than most; None without attempts."""
        return self.others / self.attempts if self.attempts else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % Wilson interval of the rate."""
        return wilson(self.others, self.attempts) if self.attempts else None


def repeat(ask: Ask, context: Context, times: int) -> Iterator[Row]:
    """The rows of so many fresh attempts, each as it ends; none is tried again. One that was not run is not repeated."""
    for _ in range(times):
        row = try_up_to(1, ask, context)
        yield row
        if row.run_py is None:
            return


_WORSE = (Result.FAIL, Result.EXCLUDED, Result.PASS)


def flakes(rows: Iterable[Row]) -> Flakes:
    """What the rows of one plan's attempts come to."""
    ends = [row.result for row in rows]
    decided = Counter(result for result in ends if result in _WORSE)
    usual = max(decided, key=lambda result: (decided[result], -_WORSE.index(result))) if decided else None
    return Flakes(
        attempts=decided.total(),
        usual=usual,
        others=decided.total() - (decided[usual] if usual else 0),
        inconclusive=len(ends) - decided.total(),
    )


def wilson(count: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share of which `count` of `total` were seen; it holds near 0 and 1, too."""
    share = count / total
    spread = Z * math.sqrt(share * (1 - share) / total + Z * Z / (4 * total * total))
    middle, scale = share + Z * Z / (2 * total), 1 + Z * Z / total
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
