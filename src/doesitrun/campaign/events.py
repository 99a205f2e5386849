"""What a campaign tells while it goes on; screens and programs listen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from doesitrun.outcomes import Reason, Result
from doesitrun.store.accounts import Counts


@dataclass(frozen=True)
class Planning:
    """So many of the models have been looked at."""

    stack: str
    done: int
    total: int


@dataclass(frozen=True)
class Planned:
    """All models of a stack were looked at: how many have a row already, were refused one by one, and will be run."""

    stack: str
    planned: int
    settled: int
    refused: int
    to_run: int


@dataclass(frozen=True)
class Began:
    """A model was given its cores."""

    key: str
    model: str
    place: str
    cores: tuple[int, ...]
    attempt: int
    """1, or more when an INCONCLUSIVE one is tried again."""


@dataclass(frozen=True)
class Stepped:
    """Another thing is being done with a model: load, compile, run, reference, ..."""

    key: str
    step: str


@dataclass(frozen=True)
class Ended:
    """A model has its row. `again` is true when it will be tried once more."""

    key: str
    model: str
    result: Result
    reason: Reason | None
    wall_s: float
    again: bool = False


@dataclass(frozen=True)
class Ticked:
    """How it stands, about twice a second."""

    busy: int
    cores: int
    done: int
    left: int
    remaining_s: float | None
    """Expected seconds to the end, from past wall times; None while nothing is known."""


@dataclass(frozen=True)
class Summed:
    """What a stack's models came to."""

    stack: str
    counts: Counts


Event = Planning | Planned | Began | Stepped | Ended | Ticked | Summed
Listen = Callable[[Event], None]
