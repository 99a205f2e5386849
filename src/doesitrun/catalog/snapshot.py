"""The published data at one moment, laid out for quick answers. It never changes, so any number of threads may ask it.

Rows lie in the order of model, task, target and pair (the newest first); within these, the row that speaks for the model
with that pair comes first. A row speaks before others if it says something of the model (an INCONCLUSIVE one says nothing,
and one left out by choice little), if it is of the revision that was tested last, if it is a PASS (on the fewest cores),
and if it is newer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from doesitrun.catalog.answers import UNTESTED, Each, Pair
from doesitrun.catalog.columns import Coded, Codes, Names, Numbers, firsts
from doesitrun.catalog.reading import DataFile
from doesitrun.outcomes import Result
from doesitrun.targets import TARGETS

T = TypeVar("T")
GB = 1e9
RESULTS = (*(result.value for result in Result), "", UNTESTED)
"""The order of results in sorted lines."""
_LINES, _TEXTS = 24, 128
"""Answers that are remembered: of a million rows, lines take some 20 MB each, a search for a text less than one."""
_EDGES_GB = (2.0, 8.0, 20.0, 80.0)


class Memory:
    """The last answers by question: a small cache that threads may share."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` gave for this key. Two threads may make it at once; then one of them is kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                found: T = self._kept[key]
                return found
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return made


@dataclass(frozen=True)
class Columns:
    """The rows' light columns, row by row."""

    model: Codes
    task: Coded
    target: Coded
    device: Coded
    result: Coded
    reason: Coded
    rungs: Coded
    revision: Codes
    compiler: Coded
    compiler_version: Coded
    library: Coded
    library_version: Coded
    pair: Codes
    """Number of the pair, the oldest first."""
    cores: Numbers
    wall_s: Numbers
    peak_gb: Numbers
    warm_run_s: Numbers
    weights_gb: Numbers
    tested_at: Numbers
    tier: npt.NDArray[np.int8]
    """How much the row says of its model: 0 much, 1 it was left out by choice, 2 nothing."""
    exclusion: pa.StringArray
    file: Codes
    number: Codes
    """Which file, and which of its light rows."""

    def group(self, pairs: int = 0) -> npt.NDArray[np.int64]:
        """Of each row a number for its model, task and target, that grows with them; with `pairs`, the count of all, its pair too.

        Of newer pairs it is smaller.
        """
        key = self.model.astype(np.int64) * len(self.task.values) + self.task.codes
        key = key * len(self.target.values) + self.target.codes
        return key * pairs + (pairs - 1 - self.pair) if pairs else key


@dataclass(frozen=True)
class Ranking:
    """The newest rankings, line by line."""

    day: str
    """The newest day; where that day has not some task or order, its lines are of an earlier one."""
    model: Codes
    task: Coded
    by: Coded
    rank: Numbers
    downloads: Numbers
    likes: Numbers


@dataclass(frozen=True)
class Plans:
    """The newest forecasts of one target."""

    target: str
    table: pa.Table
    of_model: Codes
    """Of each model its line in the table; -1 if it was not planned."""
    model: Codes
    """Of each line its model."""
    reason: Coded


@dataclass(frozen=True)
class Catalog:
    """Everything published, at one moment."""

    version: int
    """Grows when the data change."""
    loaded_at: datetime
    notices: tuple[str, ...]
    """What cannot be read now, in sentences; then the data are those from before."""
    files: tuple[DataFile, ...]
    names: Names
    columns: Columns
    pairs: tuple[Pair, ...]
    """All pairs, the oldest first within a target."""
    ranking: Ranking | None
    plans: Mapping[str, Plans]
    """By target."""
    architecture: Coded
    """Of each model; "" where it is not known."""
    model_gb: Numbers
    """Of each model its weights as loaded, as far as known."""
    lines: Memory = field(default_factory=lambda: Memory(_LINES), repr=False, compare=False)
    texts: Memory = field(default_factory=lambda: Memory(_TEXTS), repr=False, compare=False)

    @property
    def row_count(self) -> int:
        return len(self.columns.model)

    @cached_property
    def default_target(self) -> str:
        """The target that is shown unasked: the first with rows, else with plans; "" without any."""
        rows = np.bincount(self.columns.target.codes, minlength=len(self.columns.target.values))
        with_rows = {name for name, count in zip(self.columns.target.values, rows.tolist(), strict=True) if count and name}
        return next((name for there in (with_rows, set(self.plans)) for name in (*TARGETS, *sorted(there)) if name in there), "")

    @cached_property
    def size(self) -> npt.NDArray[np.int8]:
        """Of each model the number of its size in `Size`; -1 where it is not known."""
        found = np.searchsorted(_EDGES_GB, self.model_gb, side="left").astype(np.int8)
        found[np.isnan(self.model_gb)] = -1
        return found

    @cached_property
    def _subject(self) -> npt.NDArray[np.int64]:
        return self.columns.group()

    @cached_property
    def _subject_and_pair(self) -> npt.NDArray[np.int64]:
        return self.columns.group(len(self.pairs))

    @cached_property
    def _newest_first(self) -> Codes:
        age = np.nan_to_num(-self.columns.tested_at, nan=np.inf)
        return np.argsort(age, kind="stable").astype(np.int32)

    def newest_first(self, rows: Codes) -> Codes:
        """The same rows, those that were tested last before the others."""
        wanted = np.zeros(self.row_count, np.bool_)
        wanted[rows] = True
        return self._newest_first[wanted[self._newest_first]]

    def speaking(self, rows: Codes, each: Each) -> Codes:
        """Of some rows, in order, those that speak for their model: one per model, task and target, or one per pair of these."""
        per_pair = rows[firsts(self._subject_and_pair[rows])]
        if each is Each.PAIR or not len(per_pair):
            return per_pair
        starts = firsts(self._subject[per_pair])
        tier = self.columns.tier[per_pair]
        member = np.cumsum(starts) - 1
        best = np.flatnonzero(tier == np.minimum.reduceat(tier, np.flatnonzero(starts))[member])
        return per_pair[best[firsts(member[best])]]

    def whole_row(self, row: int) -> dict[str, Any]:
        """Every column of a row, those that are not kept in memory too. Raises WorkspaceError."""
        return self.files[int(self.columns.file[row])].whole(int(self.columns.number[row]))

    def rows_of(self, model: int) -> Codes:
        """The rows of a model, in order."""
        first, end = np.searchsorted(self.columns.model, [model, model + 1])
        return np.arange(first, end, dtype=np.int32)
