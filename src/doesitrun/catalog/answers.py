"""Questions to the published data, and what is answered: frozen records; it touches nothing and imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self, TypeVar

from doesitrun.errors import UsageError
from doesitrun.records import Forecast

UNTESTED = "untested"
"""The value of the filter `result` that keeps what no row covers."""
PAGE_LINES = 100


class View(StrEnum):
    """Which models are listed, and in which order."""

    SELECTED = "selected"
    """Models that have a row; those tested last come first."""
    TRENDING = "trending"
    """The Hub's own order by trending, per task."""
    DOWNLOADS = "downloads"
    """The Hub's own order by downloads, per task."""


class Each(StrEnum):
    """What one line of the view Selected stands for."""

    MODEL = "model"
    """A model on a target: its row with the newest versions."""
    PAIR = "pair"
    """A model on a target with one pair of versions."""


class Size(StrEnum):
    """How large a model is: all its weights once, as loaded, in 10^9 bytes."""

    UP_TO_2 = "0-2 GB"
    UP_TO_8 = "2-8 GB"
    UP_TO_20 = "8-20 GB"
    UP_TO_80 = "20-80 GB"
    OVER_80 = "over 80 GB"


class Sort(StrEnum):
    """Columns that lines can be sorted by; the value is also the name in `Line`."""

    MODEL = "model_id"
    TASK = "task"
    ARCHITECTURE = "architecture"
    RESULT = "result"
    REASON = "reason"
    TARGET = "target"
    WEIGHTS = "weights_gb"
    CORES = "cores"
    WALL = "wall_s"
    PEAK = "peak_gb"
    RESTS_ON = "rests_on"
    COMPILER = "compiler_version"
    LIBRARY = "library_version"
    TESTED = "tested_at"
    RANK = "rank"
    DOWNLOADS = "downloads"
    LIKES = "likes"


E = TypeVar("E", bound=StrEnum)


def choice(kind: type[E], text: str, option: str) -> E:
    """The member of that value. Raises UsageError, which names them all."""
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"There is no {option} {text!r}: choose one of {', '.join(kind)}.") from None


@dataclass(frozen=True)
class Pair:
    """Compiler and library with their versions, on one target. Its text names the folder and file of its rows."""

    target: str
    compiler: str
    compiler_version: str
    library: str
    library_version: str

    def __str__(self) -> str:
        return f"{self.target}/{self.compiler}-{self.compiler_version}/{self.library}-{self.library_version}"


@dataclass(frozen=True)
class Query:
    """What is looked for. Every filter that is None lets everything through."""

    text: str = ""
    """Any part of the model's name, as typed; upper and lower case are the same."""
    view: View = View.SELECTED
    task: str | None = None
    result: str | None = None
    """PASS, FAIL, EXCLUDED, INCONCLUSIVE, or `untested`."""
    reason: str | None = None
    architecture: str | None = None
    size: Size | None = None
    cores: int | None = None
    target: str | None = None
    compiler_version: str | None = None
    library_version: str | None = None
    each: Each = Each.MODEL
    sort: Sort | None = None
    """None: the view's own order."""
    descending: bool = False
    offset: int = 0
    limit: int = PAGE_LINES

    def parameters(self) -> dict[str, str]:
        """What differs from the default, as the parameters of a web address; `from_parameters` reads it back."""
        default = Query()
        found = {name: (getattr(self, field), getattr(default, field)) for name, (field, _) in _PARAMETERS.items()}
        return {name: "1" if value is True else str(value) for name, (value, usual) in found.items() if value != usual}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> Self:
        """The query of a web address. What makes no sense there is passed over, as is any other parameter."""
        found: dict[str, Any] = {}
        for name, (field, read) in _PARAMETERS.items():
            if parameters.get(name, "") == "":
                continue
            try:
                found[field] = read(str(parameters[name]))
            except ValueError:
                continue
        return cls(**found)


def _count(text: str) -> int:
    number = int(text[:20])
    if not 0 <= number < 2**31:
        message = "is no count"
        raise ValueError(message)
    return number


_PARAMETERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "view": ("view", View),
    "q": ("text", str),
    "task": ("task", str),
    "result": ("result", str),
    "reason": ("reason", str),
    "arch": ("architecture", str),
    "size": ("size", Size),
    "cores": ("cores", _count),
    "target": ("target", str),
    "compiler": ("compiler_version", str),
    "transformers": ("library_version", str),
    "each": ("each", Each),
    "sort": ("sort", Sort),
    "desc": ("descending", lambda text: text == "1"),
    "offset": ("offset", _count),
    "limit": ("limit", _count),
}
"""Names in a web address: the field of `Query`, and how its text is read."""


@dataclass(frozen=True)
class Line:
    """One line of a view. Texts are "" and numbers None where nothing is known."""

    model_id: str
    task: str = ""
    architecture: str = ""
    result: str = ""
    """PASS, FAIL, EXCLUDED or INCONCLUSIVE; "" where no row covers the model. A forecast never fills it."""
    reason: str = ""
    """From the closed list of reasons; of the forecast where there is no row."""
    fault: str = ""
    """Whose fault the reason is: model, choice, incompatible, upstream or harness."""
    why: str = ""
    """In plain words: why there is no PASS, or what the planner expects (then it begins with "Forecast: ")."""
    target: str = ""
    device: str = ""
    cores: int | None = None
    wall_s: int | None = None
    """Seconds of the whole run, compilation included."""
    peak_gb: float | None = None
    """Peak device memory of the fullest rank, in 10^9 bytes."""
    weights_gb: float | None = None
    """All weights once, as loaded, in 10^9 bytes; from the row, the planner or the Hub's count of parameters."""
    rests_on: tuple[str, ...] = ()
    """The rungs that the result rests on."""
    compiler: str = ""
    compiler_version: str = ""
    library: str = ""
    library_version: str = ""
    tested_at: datetime | None = None
    rank: int | None = None
    """Place in the Hub's ranking of this view; None in Selected."""
    downloads: int | None = None
    likes: int | None = None
    forecast: Forecast | None = None
    """The planner's answer, where no row covers the model."""
    row: int | None = None
    """Number of its row in this catalog; None where there is none."""

    @property
    def pair(self) -> Pair:
        return Pair(self.target, self.compiler, self.compiler_version, self.library, self.library_version)


@dataclass(frozen=True)
class Found:
    """The answer to a query: one page of lines, of `total` in all."""

    lines: tuple[Line, ...]
    total: int
    counts: Mapping[str, int]
    """Lines of each result, the lines on other pages too; what no row covers is under `untested`."""
    advice: str = ""
    """What to do when nothing was found; else ""."""


@dataclass(frozen=True)
class Choices:
    """Values that the filters can take in the data, for selectors. Versions are the newest first."""

    tasks: tuple[str, ...]
    results: tuple[str, ...]
    """`untested` is not among them."""
    reasons: tuple[str, ...]
    architectures: tuple[str, ...]
    cores: tuple[int, ...]
    targets: tuple[str, ...]
    compiler_versions: tuple[str, ...]
    library_versions: tuple[str, ...]
    pairs: tuple[Pair, ...]
    """The newest first within a target."""


# ---------------------------------------------------------------------------------- a model's page
@dataclass(frozen=True)
class History:
    """One model on one target with one task, over the pairs of versions."""

    target: str
    task: str
    lines: tuple[Line, ...]
    """One per pair, the oldest pair first."""
    runs_since: Pair | None
    """The pair since which every result is a PASS; None if the newest result is none."""
    broke_at: Pair | None
    """The pair with which a PASS was lost that has not come back; None if there is no such pair."""
    sentence: str
    """The same in words."""


@dataclass(frozen=True)
class Evidence:
    """What a result rests on."""

    rungs: tuple[tuple[str, str], ...]
    """(rung, what it means)."""
    cpu_match: str
    match_tokens: int | None
    logit_ratio: float | None
    logit_ratio_median: float | None
    passage_loss: float | None
    english: str
    fluency_nll: float | None
    judge: str
    prompt: str
    output_text: str
    seconds: tuple[tuple[str, float], ...]
    """(phase, seconds), in the order of the run."""
    memory_gb: tuple[tuple[str, float], ...]
    """(what, 10^9 bytes) on the fullest rank."""
    graphs: int | None
    compiled: bool | None


@dataclass(frozen=True)
class Failure:
    """Why there is no PASS."""

    text: str
    """The error or the exclusion, whole and as it is."""
    stage: str
    reason: str
    fault: str
    meaning: str
    advice: str


@dataclass(frozen=True)
class Suggestion:
    """What to try next."""

    sentence: str
    line: Line | None = None
    """The row that it rests on, if there is one."""


@dataclass(frozen=True)
class Page:
    """Everything about one model: the line that was asked for, and all others."""

    model_id: str
    line: Line
    lines: tuple[Line, ...]
    """All rows of the model: the newest pairs first."""
    histories: tuple[History, ...]
    evidence: Evidence | None
    """None where nothing was run."""
    failure: Failure | None
    """None for a PASS, and where there is no row."""
    stack: tuple[tuple[str, str], ...]
    """(package or part, version)."""
    install: str
    """One pip command for the packages; "" where no version is known."""
    graphs: str
    """One command that copies the compiled graphs of this compiler version here; "" where there are none."""
    run_py: str
    """The script that ran, whole; "" where none did."""
    suggestions: tuple[Suggestion, ...]
    forecasts: tuple[Forecast, ...]
    """The planner's answers for this model: one per target and device."""
    values: Mapping[str, Any]
    """Every column of the row, by name; empty where there is none."""
    notices: tuple[str, ...] = ()
    """What could not be read, in sentences."""


# ---------------------------------------------------------------------------------- comparing, coverage, changes
class ChangeKind(StrEnum):
    """What became of a model from one pair to another."""

    FIXED = "fixed"
    BROKEN = "broken"
    SLOWER = "slower"
    FASTER = "faster"
    NEW = "new"
    GONE = "gone"
    SAME = "same"
    UNCLEAR = "unclear"
    """One of the two says nothing of the model: it was not run, or the run was inconclusive."""


@dataclass(frozen=True)
class Change:
    """One model (and number of cores) with two pairs."""

    kind: ChangeKind
    model_id: str
    task: str
    cores: int | None
    before: Line | None
    after: Line | None
    ratio: float | None = None
    """Seconds of the warm pass after : before, where both are a PASS and known."""


@dataclass(frozen=True)
class Comparison:
    """Two pairs side by side."""

    before: Pair
    after: Pair
    counts: Mapping[ChangeKind, int]
    """Every kind, also those that are 0."""
    changes: tuple[Change, ...]
    """All but SAME; broken ones first."""


@dataclass(frozen=True)
class Tally:
    """How many lines of each result there are under a name."""

    name: str
    passed: int
    failed: int
    excluded: int
    inconclusive: int

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.excluded + self.inconclusive


@dataclass(frozen=True)
class Coverage:
    """Figures over the lines of a query."""

    all: Tally
    by_architecture: tuple[Tally, ...]
    """The most frequent first."""
    by_cores: tuple[Tally, ...]
    by_size: tuple[Tally, ...]
    by_pair: tuple[Tally, ...]
    reasons: tuple[tuple[str, str, str, int], ...]
    """(result, reason, its meaning, lines), the most frequent first."""
    wall_s: tuple[float, ...]
    """Wall time of every PASS and FAIL that has one, ascending."""
    peak_gb: tuple[float, ...]
    """The same for peak memory."""


@dataclass(frozen=True)
class Event:
    """A result that differs from the one before it, for the feed."""

    at: datetime
    model_id: str
    task: str
    before: Line | None
    """None: the model is new on this target."""
    after: Line
