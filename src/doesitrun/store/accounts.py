"""Which attempts count, and how many of each result there are; it touches nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from doesitrun.outcomes import Result
from doesitrun.records import Row


def _beats(new: Row, old: Row | None) -> bool:
    return old is None or new.result is not Result.INCONCLUSIVE or old.result is Result.INCONCLUSIVE


def winner(attempts: Iterable[Row]) -> Row | None:
    """Of attempts at one plan the one that counts: the last that ended, but INCONCLUSIVE never replaces a result.

    None when none has ended.
    """
    best: Row | None = None
    for row in sorted(attempts, key=lambda row: row.attempt or 0):
        if row.result is not None and _beats(row, best):
            best = row
    return best


def _stack_key(row: Row) -> tuple[str, ...]:
    return tuple(part or "" for part in (row.plan_id, row.target, row.compiler, row.compiler_version, row.library, row.library_version))


def published(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows that belong in the dataset: one per plan and versions of compiler and library.

    Pending ones are left out, and so are those of an emulated device, which prove nothing.
    """
    real = [row for row in rows if not row.is_emulated]
    groups = groupby(sorted(real, key=_stack_key), key=_stack_key)
    return tuple(row for _, attempts in groups if (row := winner(attempts)) is not None)


@dataclass(frozen=True)
class Counts:
    """How many plans ended how. Raises ValueError when they do not add up."""

    planned: int
    passed: int
    failed: int
    excluded: int
    inconclusive: int
    pending: int

    def __post_init__(self) -> None:
        parts = self.passed + self.failed + self.excluded + self.inconclusive + self.pending
        if parts != self.planned or min(self.planned, self.passed, self.failed, self.excluded, self.inconclusive, self.pending) < 0:
            message = f"{self.planned} planned, but {parts} accounted for: {self}"
            raise ValueError(message)

    @property
    def is_complete(self) -> bool:
        """True when something was planned and nothing is pending: an empty run tested nothing."""
        return self.planned > 0 and self.pending == 0

    def __str__(self) -> str:
        return (
            f"{self.planned} planned = {self.passed} PASS + {self.failed} FAIL + {self.excluded} EXCLUDED"
            f" + {self.inconclusive} INCONCLUSIVE + {self.pending} pending"
        )


def accounting(rows: Iterable[Row], planned: Iterable[str] | None = None) -> Counts:
    """Every plan once, by the attempt that counts.

    With `planned` (plan ids): those plans and no others; one without any row is pending. Rows of several stacks
    should be told apart first: here the last stack's attempt at a plan counts.
    """
    attempts: dict[str, list[Row]] = {} if planned is None else {plan_id: [] for plan_id in planned}
    for number, row in enumerate(rows):
        plan_id = row.plan_id or f"row {number} without a plan"
        if planned is None:
            attempts.setdefault(plan_id, []).append(row)
        elif plan_id in attempts:
            attempts[plan_id].append(row)
    ends = [None if best is None else best.result for best in map(winner, attempts.values())]
    return Counts(
        len(attempts),
        ends.count(Result.PASS),
        ends.count(Result.FAIL),
        ends.count(Result.EXCLUDED),
        ends.count(Result.INCONCLUSIVE),
        ends.count(None),
    )
