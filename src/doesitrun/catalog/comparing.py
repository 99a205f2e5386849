"""Two pairs side by side, figures over many lines, and what changed when; pure over a catalog."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from doesitrun.catalog.answers import (
    Change,
    ChangeKind,
    Comparison,
    Coverage,
    Each,
    Event,
    Line,
    Pair,
    Query,
    Size,
    Tally,
)
from doesitrun.catalog.asking import kept_rows, rows_drawn
from doesitrun.catalog.columns import Codes
from doesitrun.catalog.snapshot import Catalog
from doesitrun.catalog.words import reason_words
from doesitrun.errors import UsageError
from doesitrun.outcomes import Result

SLOWER = 1.2
"""A warm pass that takes this many times as long is slower."""
LEAST_S = 0.001
"""What is shorter is no time that a pass takes."""
_SHOWN_PAIRS = 8
_ORDER = (ChangeKind.BROKEN, *(kind for kind in ChangeKind if kind is not ChangeKind.BROKEN))


def pair_named(data: Catalog, text: str) -> Pair:
    """The pair of this text, or the only one that has it in its text. Raises UsageError, which names those there are."""
    exact = [pair for pair in data.pairs if str(pair) == text]
    found = exact or [pair for pair in data.pairs if text.lower() in str(pair).lower()]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(str(pair) for pair in (found or data.pairs)[::-1][:_SHOWN_PAIRS])
    if not data.pairs:
        raise UsageError("There are no rows in these data, so there is no pair of versions: open others.")
    what = f"{len(found)} pairs have {text!r} in their name" if found else f"There is no pair {text!r}"
    raise UsageError(f"{what}: name one of {shown}.")


def compare(data: Catalog, before: Pair, after: Pair, slower: float = SLOWER) -> Comparison:
    """What became of every model (task by task) from one pair to the other.

    For each the row that speaks for it counts. A warm pass that takes `slower` times as long is slower.
    """
    old, new = _by_subject(data, before), _by_subject(data, after)
    rows = rows_drawn(data, np.array([*old.values(), *new.values()], np.int32))
    changes = []
    for subject in dict.fromkeys([*old, *new]):
        left, right = old.get(subject), new.get(subject)
        first, last = (None if row is None else rows[row] for row in (left, right))
        line = last or first
        assert line is not None
        both_pass = first and last and first.result == last.result == Result.PASS
        seconds = _seconds(data, left, right) if both_pass else None
        ratio = seconds[1] / seconds[0] if seconds else None
        changes.append(Change(_kind(first, last, seconds, slower), line.model_id, line.task, line.cores, first, last, ratio))
    counted = Counter(change.kind for change in changes)
    shown = [change for change in changes if change.kind is not ChangeKind.SAME]
    shown.sort(key=lambda change: (_ORDER.index(change.kind), -(change.ratio or 0), change.model_id.lower()))
    return Comparison(before, after, {kind: counted[kind] for kind in ChangeKind}, tuple(shown))


def _by_subject(data: Catalog, pair: Pair) -> dict[tuple[int, int], int]:
    """(model, task): the row that speaks for it with this pair."""
    if pair not in data.pairs:
        return {}
    rows = np.flatnonzero(data.columns.pair == data.pairs.index(pair)).astype(np.int32)
    rows = data.speaking(rows, Each.PAIR)
    return dict(
        zip(zip(data.columns.model[rows].tolist(), data.columns.task.codes[rows].tolist(), strict=True), rows.tolist(), strict=True)
    )


def _seconds(data: Catalog, before: int | None, after: int | None) -> tuple[float, float] | None:
    """Seconds of the warm pass before and after, on equally many cores; the whole run's where no warm pass is known."""
    if before is None or after is None:
        return None
    columns = data.columns
    if columns.cores[before] != columns.cores[after]:
        return None
    for seconds in (columns.warm_run_s, columns.wall_s):
        both = float(seconds[before]), float(seconds[after])
        if all(math.isfinite(each) and each >= LEAST_S for each in both):
            return both
    return None


def _kind(before: Line | None, after: Line | None, seconds: tuple[float, float] | None, slower: float) -> ChangeKind:
    if before is None:
        return ChangeKind.NEW
    if after is None:
        return ChangeKind.GONE
    told = {before.result, after.result} <= {Result.PASS.value, Result.FAIL.value}
    if before.result != after.result:
        if not told:
            return ChangeKind.UNCLEAR
        return ChangeKind.FIXED if after.result == Result.PASS else ChangeKind.BROKEN
    if seconds is not None:
        if seconds[1] >= slower * seconds[0]:
            return ChangeKind.SLOWER
        if seconds[0] >= slower * seconds[1]:
            return ChangeKind.FASTER
    return ChangeKind.SAME


# ---------------------------------------------------------------------------------- coverage
def coverage(data: Catalog, query: Query | None = None) -> Coverage:
    """Figures over all lines of a query: its offset and limit do not count. Lines without a row are left out."""
    rows = kept_rows(data, query or Query())
    columns = data.columns
    results = columns.result.codes[rows]
    architectures = data.architecture.codes[columns.model[rows]]
    sizes = data.size[columns.model[rows]]
    cores = [str(int(number)) if number == number else "" for number in columns.cores[rows].tolist()]
    tried = np.isin(columns.result.codes[rows], [columns.result.code(value) for value in (Result.PASS.value, Result.FAIL.value)])
    names = [tuple(Size)[number].value if number >= 0 else "" for number in sizes.tolist()]
    reasons = Counter(zip(columns.result.taken(rows), columns.reason.taken(rows), strict=True))
    told = [(result, reason, reason_words(reason), count) for (result, reason), count in reasons.most_common() if result != Result.PASS]
    return Coverage(
        all=_tally(data, "", results.tolist()),
        by_architecture=_tallies(data, [data.architecture.values[code] for code in architectures.tolist()], results),
        by_cores=tuple(sorted(_tallies(data, cores, results), key=lambda tally: int(tally.name or 0))),
        by_size=tuple(sorted(_tallies(data, names, results), key=lambda tally: [*Size, ""].index(tally.name))),
        by_pair=_tallies(data, [str(data.pairs[number]) for number in columns.pair[rows].tolist()], results),
        reasons=tuple(told),
        wall_s=_distribution(columns.wall_s[rows][tried]),
        peak_gb=_distribution(columns.peak_gb[rows][tried]),
    )


def _tallies(data: Catalog, names: Sequence[str], results: Codes) -> tuple[Tally, ...]:
    under: dict[str, list[int]] = {}
    for name, result in zip(names, results.tolist(), strict=True):
        under.setdefault(name, []).append(result)
    return tuple(sorted((_tally(data, name, found) for name, found in under.items()), key=lambda tally: (-tally.total, tally.name)))


def _tally(data: Catalog, name: str, results: Iterable[int]) -> Tally:
    counted = Counter(data.columns.result.values[code] for code in results)
    return Tally(name, *(counted[result.value] for result in (Result.PASS, Result.FAIL, Result.EXCLUDED, Result.INCONCLUSIVE)))


def _distribution(values: Any) -> tuple[float, ...]:
    return tuple(np.sort(values[np.isfinite(values)]).tolist())


# ---------------------------------------------------------------------------------- changes over time
def events(data: Catalog, limit: int = 200, target: str | None = None) -> tuple[Event, ...]:
    """The newest changes: a model's first result on a target, and each that differs from the one with the pair before.

    INCONCLUSIVE rows say nothing of a model, so they are passed over.
    """
    columns = data.columns
    mask = columns.tier < 2
    if target is not None:
        mask &= columns.target.codes == columns.target.code(target)
    rows = data.speaking(np.flatnonzero(mask).astype(np.int32), Each.PAIR)
    subject = columns.group()[rows]
    result = columns.result.codes[rows]
    # The newest pair of a model comes first: what follows a row, within the model, is what was before it.
    has_before = np.concatenate([subject[1:] == subject[:-1], np.zeros(min(1, len(rows)), np.bool_)])
    differs = ~has_before | np.concatenate([result[1:] != result[:-1], np.ones(min(1, len(rows)), np.bool_)])
    known = ~np.isnan(columns.tested_at[rows])
    places = np.flatnonzero(differs & known)
    newest = places[np.argsort(-columns.tested_at[rows[places]], kind="stable")[:limit]]
    wanted = np.unique(np.concatenate([newest, newest[has_before[newest]] + 1]))
    lines = rows_drawn(data, rows[wanted])
    found = []
    for place in newest.tolist():
        after = lines[int(rows[place])]
        before = lines[int(rows[place + 1])] if has_before[place] else None
        assert after.tested_at is not None
        found.append(Event(after.tested_at, after.model_id, after.task, before, after))
    return tuple(found)
