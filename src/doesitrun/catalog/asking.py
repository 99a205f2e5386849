"""A query to its lines; pure over a catalog.

The filters on versions, target, task and cores choose among a model's rows before one of them speaks for it; those on
results and on the model itself choose among the lines. The lines before the latter, sorted, are remembered: so while
somebody types, a query is one search through the models' names and one pass over the lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from doesitrun.catalog.answers import UNTESTED, Choices, Each, Found, Line, Query, Size, Sort, View
from doesitrun.catalog.columns import Coded, Codes, Mask, Numbers, at, moment, order_of, values_of
from doesitrun.catalog.snapshot import Catalog, Plans, Ranking
from doesitrun.catalog.words import fault_of, nothing_found, reason_words, why_forecast, why_not
from doesitrun.records import Forecast

SIZES = tuple(Size)


@dataclass(frozen=True)
class Lines:
    """Lines before they are drawn: of each its row, its model and its place in the ranking; -1 for none."""

    row: Codes
    model: Codes
    place: Codes
    plan: Codes
    result: Codes
    """Number of its result in the catalog's results; -1 where no row covers it."""


def find(data: Catalog, query: Query) -> Found:
    """One page of the lines that the query lets through, and how many there are in all."""
    lines = _sorted_lines(data, query)
    kept = _kept(data, query, lines)
    hits = np.arange(len(lines.model), dtype=np.int32) if kept is None else np.flatnonzero(kept).astype(np.int32)
    counts = np.bincount(lines.result[hits] + 1, minlength=len(data.columns.result.values) + 1).tolist()
    named = zip((UNTESTED, *data.columns.result.values), counts, strict=True)
    shown = hits[query.offset : query.offset + query.limit]
    return Found(
        lines=drawn(data, lines, shown, plans_of(data, query)),
        total=len(hits),
        counts={name: count for name, count in named if count},
        advice="" if len(hits) else nothing_found(query, has_data=bool(len(data.names)), has_lines=bool(len(lines.model))),
    )


def kept_rows(data: Catalog, query: Query) -> Codes:
    """The rows of all lines that the query lets through, on whatever page."""
    lines = _sorted_lines(data, query)
    kept = _kept(data, query, lines)
    rows = lines.row if kept is None else lines.row[kept]
    return rows[rows >= 0]


def plans_of(data: Catalog, query: Query) -> Plans | None:
    """The forecasts that go with the query's ranking."""
    return data.plans.get(query.target or data.default_target)


# ---------------------------------------------------------------------------------- which lines
def _sorted_lines(data: Catalog, query: Query) -> Lines:
    chosen = (query.view, query.target, query.compiler_version, query.library_version, query.cores, query.task, query.each)
    unsorted = data.lines.get(chosen, lambda: _unsorted(data, query))
    return data.lines.get((chosen, query.sort, query.descending), lambda: _in_order(data, query, unsorted))


def _unsorted(data: Catalog, query: Query) -> Lines:
    if query.view is View.SELECTED:
        rows = data.newest_first(_chosen_rows(data, query, query.target, query.task))
        nothing = np.full(len(rows), -1, np.int32)
        return Lines(rows, data.columns.model[rows], nothing, nothing, data.columns.result.codes[rows])
    return _ranked(data, query)


def _chosen_rows(data: Catalog, query: Query, target: str | None, task: str | None) -> Codes:
    """The rows that speak for the models, among those with the versions, target, task and cores that are asked for."""
    columns = data.columns
    mask: Mask | None = None
    wanted: list[tuple[Coded, str | None]] = [
        (columns.target, target),
        (columns.compiler_version, query.compiler_version),
        (columns.library_version, query.library_version),
        (columns.task, task),
    ]
    for column, value in wanted:
        if value is not None:
            mask = _and(mask, column.codes == column.code(value))
    if query.cores is not None:
        mask = _and(mask, columns.cores == query.cores)
    rows = np.arange(data.row_count, dtype=np.int32) if mask is None else np.flatnonzero(mask).astype(np.int32)
    return data.speaking(rows, query.each if query.view is View.SELECTED else Each.MODEL)


def _ranked(data: Catalog, query: Query) -> Lines:
    """The ranking's lines in the Hub's order per task, each with the row that speaks for it, or with its forecast."""
    ranking = data.ranking
    if ranking is None:
        nothing = np.zeros(0, np.int32)
        return Lines(nothing, nothing, nothing, nothing, nothing)
    mask: Mask = ranking.by.codes == ranking.by.code(query.view.value)
    if query.task is not None:
        mask = _and(mask, ranking.task.codes == ranking.task.code(query.task))
    place = np.flatnonzero(mask).astype(np.int32)
    row = _rows_for(data, query, ranking, place)
    model = ranking.model[place]
    plans = plans_of(data, query)
    plan = plans.of_model[model] if plans else np.full(len(place), -1, np.int32)
    result = np.where(row >= 0, data.columns.result.codes[row], -1) if data.row_count else np.full(len(place), -1)
    return Lines(row, model, place, np.where(row >= 0, -1, plan).astype(np.int32), result.astype(np.int32))


def _rows_for(data: Catalog, query: Query, ranking: Ranking, place: Codes) -> Codes:
    """Of each line of the ranking the row that speaks for its model with its task; one without a task serves any."""
    rows = _chosen_rows(data, query, query.target or data.default_target, None)
    found = np.full(len(place), -1, np.int32)
    if not len(rows):
        return found
    tasks = data.columns.task
    to_row_task = np.array([tasks.code(value) for value in ranking.task.values], np.int64)
    key = data.columns.model[rows].astype(np.int64) * len(tasks.values) + tasks.codes[rows]  # ascending: rows are in order
    for task in (to_row_task[ranking.task.codes[place]], np.full(len(place), tasks.code(""))):
        wanted = ranking.model[place].astype(np.int64) * len(tasks.values) + task
        near = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        hit = (key[near] == wanted) & (task >= 0) & (found < 0)
        found[hit] = rows[near[hit]]
    return found


def _and(mask: Mask | None, other: Mask) -> Mask:
    return other if mask is None else mask & other


# ---------------------------------------------------------------------------------- filters on lines
def _kept(data: Catalog, query: Query, lines: Lines) -> Mask | None:
    """Which lines the text and the filters on the model and its result let through; None for all."""
    mask: Mask | None = None
    models = _models(data, query)
    if models is not None:
        mask = models[lines.model]
    if query.result is not None:
        wanted = -1 if query.result == UNTESTED else data.columns.result.code(query.result)
        missing = wanted < 0 and query.result != UNTESTED
        mask = _and(mask, np.zeros(len(lines.row), np.bool_) if missing else lines.result == wanted)
    if query.reason is not None:
        mask = _and(mask, _has_reason(data, query, lines))
    return mask


def _models(data: Catalog, query: Query) -> Mask | None:
    """Which models the text, the architecture and the size let through; None for all."""
    mask: Mask | None = None
    if query.text:
        mask = data.texts.get(("text", query.text), lambda: data.names.matching(query.text))
    if query.architecture is not None:
        mask = _and(mask, data.architecture.codes == data.architecture.code(query.architecture))
    if query.size is not None:
        mask = _and(mask, data.size == SIZES.index(query.size))
    return mask


def _has_reason(data: Catalog, query: Query, lines: Lines) -> Mask:
    wanted = query.reason or ""
    found = np.zeros(len(lines.row), np.bool_)
    with_row = lines.row >= 0
    found[with_row] = data.columns.reason.codes[lines.row[with_row]] == data.columns.reason.code(wanted)
    plans = plans_of(data, query)
    if plans is not None:
        planned = lines.plan >= 0
        found[planned] = plans.reason.codes[lines.plan[planned]] == plans.reason.code(wanted)
    return found


# ---------------------------------------------------------------------------------- order
def _in_order(data: Catalog, query: Query, lines: Lines) -> Lines:
    if query.sort is None:
        return lines
    base = np.arange(len(lines.model), dtype=np.int32)
    order = order_of(_key(data, query.sort, lines), base, descending=query.descending)
    return Lines(lines.row[order], lines.model[order], lines.place[order], lines.plan[order], lines.result[order])


def _key(data: Catalog, sort: Sort, lines: Lines) -> Numbers:
    """What the lines are sorted by, as numbers; NaN where there is nothing to sort by."""
    columns, ranking = data.columns, data.ranking
    if sort is Sort.MODEL:
        return lines.model.astype(np.float64)
    if sort is Sort.ARCHITECTURE:
        return _texts(data.architecture, lines.model)
    if sort is Sort.WEIGHTS:
        return data.model_gb[lines.model]
    if sort in (Sort.RANK, Sort.DOWNLOADS, Sort.LIKES):
        return _taken(
            {Sort.RANK: ranking.rank, Sort.DOWNLOADS: ranking.downloads}.get(sort, ranking.likes) if ranking else None, lines.place
        )
    if sort is Sort.TASK and ranking is not None and (lines.place >= 0).all():
        return _texts(ranking.task, lines.place)
    texts = {
        Sort.TASK: columns.task,
        Sort.RESULT: columns.result,
        Sort.REASON: columns.reason,
        Sort.TARGET: columns.target,
        Sort.RESTS_ON: columns.rungs,
        Sort.COMPILER: columns.compiler_version,
        Sort.LIBRARY: columns.library_version,
    }
    if sort in texts:
        return _texts(texts[sort], lines.row)
    of_row = {Sort.CORES: columns.cores, Sort.WALL: columns.wall_s, Sort.PEAK: columns.peak_gb, Sort.TESTED: columns.tested_at}
    return _taken(of_row[sort], lines.row)


def _texts(column: Coded, places: npt.NDArray[Any]) -> Numbers:
    """The texts' places in their order; an empty one has none."""
    codes = column.codes.astype(np.float64)
    codes[column.codes == column.code("")] = np.nan
    return _taken(codes, places)


def _taken(column: Numbers | None, places: npt.NDArray[Any]) -> Numbers:
    found = np.full(len(places), np.nan)
    if column is not None:
        found[places >= 0] = column[places[places >= 0]]
    return found


# ---------------------------------------------------------------------------------- drawing
def drawn(data: Catalog, lines: Lines, shown: Codes, plans: Plans | None) -> tuple[Line, ...]:
    """Some lines in full."""
    rows, places = lines.row[shown], lines.place[shown]
    with_row = rows_drawn(data, rows[rows >= 0])
    forecasts = forecasts_at(plans, lines.plan[shown])
    names = data.names.shown.take(at(lines.model[shown])).to_pylist()
    found = []
    for name, model, row, place, forecast in zip(
        names, lines.model[shown].tolist(), rows.tolist(), places.tolist(), forecasts, strict=True
    ):
        line = with_row[row] if row >= 0 else _without_row(data, name, model, forecast, plans)
        found.append(line if place < 0 else _placed(data, line, place))
    return tuple(found)


def rows_drawn(data: Catalog, rows: Codes) -> dict[int, Line]:
    """Lines of rows, by their number."""
    c = data.columns
    texts = [c.task, c.result, c.reason, c.target, c.device, c.compiler, c.compiler_version, c.library, c.library_version, c.rungs]
    figures = [c.cores, c.wall_s, c.peak_gb, c.weights_gb, c.tested_at]
    model = c.model[rows]
    columns = zip(
        rows.tolist(),
        data.names.shown.take(at(model)).to_pylist(),
        data.architecture.taken(model),
        c.exclusion.take(at(rows)).to_pylist(),
        zip(*(column.taken(rows) for column in texts), strict=True),
        zip(*(column[rows].tolist() for column in figures), strict=True),
        data.model_gb[model].tolist(),
        strict=True,
    )
    found = {}
    for row, name, architecture, exclusion, text, figure, model_gb in columns:
        task, result, reason, target, device, compiler, compiler_version, library, library_version, rungs = text
        cores, wall_s, peak_gb, weights_gb, tested_at = figure
        found[row] = Line(
            model_id=name,
            task=task,
            architecture=architecture,
            result=result,
            reason=reason,
            fault=fault_of(reason),
            why=why_not(result, reason, exclusion or ""),
            target=target,
            device=device,
            cores=_whole(cores),
            wall_s=_whole(wall_s),
            peak_gb=_real(peak_gb),
            weights_gb=_real(weights_gb) or _real(model_gb),
            rests_on=tuple(rung for rung in rungs.split(",") if rung),
            compiler=compiler,
            compiler_version=compiler_version,
            library=library,
            library_version=library_version,
            tested_at=moment(tested_at),
            row=row,
        )
    return found


def _without_row(data: Catalog, name: str, model: int, forecast: Forecast | None, plans: Plans | None) -> Line:
    reason = (forecast.reason or "") if forecast and forecast.outcome == "excluded" else ""
    return Line(
        model_id=name,
        architecture=data.architecture.values[data.architecture.codes[model]],
        reason=reason,
        fault=fault_of(reason),
        why=why_forecast(forecast),
        target=plans.target if plans and forecast else "",
        device=forecast.device if forecast else "",
        weights_gb=_real(float(data.model_gb[model])),
        forecast=forecast,
    )


def _placed(data: Catalog, line: Line, place: int) -> Line:
    ranking = data.ranking
    assert ranking is not None
    task = ranking.task.values[ranking.task.codes[place]]
    figures = (ranking.rank[place], ranking.downloads[place], ranking.likes[place])
    rank, downloads, likes = (_whole(float(value)) for value in figures)
    # Not dataclasses.replace: a hundred lines of it take longer than the search.
    return Line(**{**line.__dict__, "task": task, "rank": rank, "downloads": downloads, "likes": likes})


def forecasts_at(plans: Plans | None, places: Codes) -> list[Forecast | None]:
    """The forecasts at some lines of the table; None for -1."""
    if plans is None or not (places >= 0).any():
        return [None] * len(places)
    taken = plans.table.take(at(places[places >= 0]))
    columns = [values_of(column) for column in taken.columns]
    found = iter([Forecast(**dict(zip(taken.column_names, values, strict=True))) for values in zip(*columns, strict=True)])
    return [next(found) if place >= 0 else None for place in places.tolist()]


def _whole(number: float) -> int | None:
    return None if number != number else int(number)


def _real(number: float) -> float | None:
    return None if number != number else number


# ---------------------------------------------------------------------------------- choices
def choices(data: Catalog, target: str | None = None) -> Choices:
    """What the filters can be set to; of rows only those of one target, if it is given."""
    return data.texts.get(("choices", target), lambda: _choices(data, target))


def _choices(data: Catalog, target: str | None) -> Choices:
    columns = data.columns
    mask = np.ones(data.row_count, np.bool_) if target is None else columns.target.codes == columns.target.code(target)

    def present(column: Coded, where: Any = mask) -> tuple[str, ...]:
        return tuple(value for code, value in enumerate(column.values) if value and code in set(np.unique(column.codes[where]).tolist()))

    pairs = [data.pairs[number] for number in np.unique(columns.pair[mask]).tolist()]
    ranked = present(data.ranking.task, slice(None)) if data.ranking else ()
    planned: Mapping[str, Plans] = {name: plans for name, plans in data.plans.items() if target in (None, name)}
    reasons = {*present(columns.reason), *(reason for plans in planned.values() for reason in present(plans.reason, slice(None)))}
    cores: Sequence[float] = np.unique(columns.cores[mask & ~np.isnan(columns.cores)]).tolist()
    return Choices(
        tasks=tuple(sorted({*present(columns.task), *ranked})),
        results=present(columns.result),
        reasons=tuple(sorted(reasons, key=reason_words)),
        architectures=tuple(value for value in data.architecture.values if value),
        cores=tuple(int(number) for number in cores),
        targets=tuple(dict.fromkeys([data.default_target, *present(columns.target, slice(None)), *sorted(data.plans)]))
        if data.default_target
        else (),
        compiler_versions=present(columns.compiler_version)[::-1],
        library_versions=present(columns.library_version)[::-1],
        pairs=tuple(pair for name in dict.fromkeys(pair.target for pair in pairs) for pair in reversed(pairs) if pair.target == name),
    )
