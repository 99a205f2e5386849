"""Everything about one model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from doesitrun.catalog.answers import Each, Evidence, Failure, History, Line, Page, Pair, Query, Suggestion
from doesitrun.catalog.asking import forecasts_at, rows_drawn
from doesitrun.catalog.columns import Codes, at
from doesitrun.catalog.snapshot import GB, Catalog
from doesitrun.catalog.words import (
    forecast_words,
    graphs_command,
    packages,
    pair_words,
    pip_command,
    reason_of,
    software,
    why_forecast,
)
from doesitrun.errors import ModelNotFoundError, WorkspaceError
from doesitrun.outcomes import Result
from doesitrun.records import Forecast
from doesitrun.verify.rungs import PROBES, RUNGS

_NEAR_NAMES = 3
_ALIKE = 3


def page(data: Catalog, model_id: str, wanted: Query | None = None) -> Page:
    """The page of a model. `wanted` chooses the row: its target, task, versions and cores; the rest of it is passed over.

    Raises ModelNotFoundError for a model that is in no row, ranking or plan, and for a row that is not there.
    """
    query = wanted or Query()
    model = data.names.number(model_id)
    if model < 0:
        raise ModelNotFoundError(_no_such_model(data, model_id))
    rows = data.rows_of(model)
    lines = rows_drawn(data, rows)
    forecasts = _forecasts(data, model)
    row = _chosen(data, rows, lines, query)
    if row is None:
        return _page_without_row(data, model_id, model, query, tuple(lines.values()), forecasts)
    values, notices = _whole(data, row)
    line = lines[row]
    return Page(
        model_id=model_id,
        line=line,
        lines=tuple(lines.values()),
        histories=_histories(data, rows, lines, line),
        evidence=_evidence(values) if line.result in (Result.PASS, Result.FAIL) or values.get("output_text") else None,
        failure=_failure(line, values),
        stack=software(values, line.target),
        install=pip_command(packages(values, line.target), line.target),
        graphs=graphs_command(str(values.get("graphs_uri") or ""), line.target),
        run_py=values.get("run_py") or "",
        suggestions=_suggestions(data, line, tuple(lines.values()), forecasts),
        forecasts=forecasts,
        values=values,
        notices=notices,
    )


def _page_without_row(
    data: Catalog, model_id: str, model: int, query: Query, lines: tuple[Line, ...], forecasts: tuple[Forecast, ...]
) -> Page:
    target = query.target or data.default_target
    forecast = next((each for each in forecasts if each.target == target), forecasts[0] if forecasts else None)
    excluded = forecast is not None and forecast.outcome != "plan"
    reason = reason_of(forecast.reason or "") if forecast and excluded else None
    line = Line(
        model_id=model_id,
        task=(forecast.task if forecast else query.task) or "",
        architecture=data.architecture.values[data.architecture.codes[model]],
        target=forecast.target if forecast else target,
        device=forecast.device if forecast else "",
        reason=reason.value if reason else "",
        fault=reason.fault.value if reason else "",
        why=why_forecast(forecast),
        forecast=forecast,
    )
    return Page(
        model_id=model_id,
        line=line,
        lines=lines,
        histories=(),
        evidence=None,
        failure=None,
        stack=(),
        install="",
        graphs="",
        run_py="",
        suggestions=_suggestions(data, line, lines, forecasts),
        forecasts=forecasts,
        values={},
    )


def _no_such_model(data: Catalog, model_id: str) -> str:
    shown = model_id if len(model_id) <= 200 else f"{model_id[:200]}..."
    alike = np.flatnonzero(data.names.matching(model_id.rpartition("/")[2]))[:_NEAR_NAMES]
    near = [str(name) for name in data.names.shown.take(at(alike)).to_pylist()]
    if not near and len(data.names) <= 20_000:
        import difflib

        near = difflib.get_close_matches(model_id, data.names.shown.to_pylist(), _NEAR_NAMES)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"These data have nothing on {shown}.{hint} Look for a part of its name, or run `doesitrun test` on it."


def _whole(data: Catalog, row: int) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    try:
        return data.whole_row(row), ()
    except WorkspaceError as error:
        return {}, (f"{error} So the script, the error and the generated text are not shown.",)


def _forecasts(data: Catalog, model: int) -> tuple[Forecast, ...]:
    found: list[Forecast | None] = []
    for plans in data.plans.values():
        found += forecasts_at(plans, np.flatnonzero(plans.model == model).astype(np.int32))
    return tuple(each for each in found if each is not None)


def _chosen(data: Catalog, rows: Codes, lines: Mapping[int, Line], query: Query) -> int | None:
    """The row that speaks for the model, among those that the query lets through; of the target that is shown unasked, if there is one."""
    through = [row for row in rows.tolist() if _fits(lines[row], query)]
    target = query.target or data.default_target
    through = [row for row in through if lines[row].target == target] or ([] if query.target else through)
    speaking = data.speaking(np.array(through, np.int32), Each.MODEL).tolist() if through else []
    return next(iter(speaking), None)


def _fits(line: Line, query: Query) -> bool:
    asked = ("task", "compiler_version", "library_version", "cores")
    return all(getattr(query, name) in (None, getattr(line, name)) for name in asked)


# ---------------------------------------------------------------------------------- history
def _histories(data: Catalog, rows: Codes, lines: Mapping[int, Line], chosen: Line) -> tuple[History, ...]:
    """By target and task: that of the chosen line first."""
    subjects: dict[tuple[str, str], list[Line]] = {(chosen.target, chosen.task): []}
    for row in data.speaking(rows, Each.PAIR).tolist():
        line = lines[row]
        subjects.setdefault((line.target, line.task), []).insert(0, line)  # rows have the newest pair first
    return tuple(history(target, task, found) for (target, task), found in subjects.items())


def history(target: str, task: str, lines: Sequence[Line]) -> History:
    """What became of a model over the pairs, the oldest first: since when it runs, or with which pair that ended."""
    told = [line for line in lines if line.result in (Result.PASS, Result.FAIL)]
    runs_since: Pair | None = None
    broke_at: Pair | None = None
    for line in told:
        if line.result == Result.PASS:
            runs_since, broke_at = runs_since or line.pair, None
        else:
            broke_at = broke_at or (line.pair if runs_since else None)
            runs_since = None
    return History(target, task, tuple(lines), runs_since, broke_at, _history_words(told, runs_since, broke_at))


def _history_words(told: Sequence[Line], runs_since: Pair | None, broke_at: Pair | None) -> str:
    if not told:
        return "It has not been run."
    if runs_since:
        earlier = "" if told[0].pair == runs_since else " Before that it failed at times."
        return f"It runs since {pair_words(runs_since)}.{earlier}"
    if broke_at:
        return f"It ran before, and broke with {pair_words(broke_at)}."
    return f"It has failed with {'every pair' if len({line.pair for line in told}) > 1 else 'the one pair'} that was tried."


# ---------------------------------------------------------------------------------- what a result rests on
def _evidence(values: Mapping[str, Any]) -> Evidence:
    rungs = [rung for rung in (values.get("rungs") or "").split(",") if rung]
    phases = (("load", "load_s"), ("compile", "compile_s"), ("first pass", "run_s"), ("second pass", "warm_run_s"))
    others = (("CPU reference", "reference_s"), ("judge", "judge_s"), ("whole run", "wall_s"))
    memory = [
        ("peak", values.get("hbm_peak_gb")),
        ("weights", _gb(values.get("rank_weights_bytes"))),
        ("capacity", values.get("hbm_capacity_gb")),
    ]
    return Evidence(
        rungs=tuple((rung, (RUNGS | PROBES).get(rung, rung)) for rung in rungs),
        cpu_match=values.get("cpu_match") or "",
        match_tokens=values.get("match_tokens"),
        logit_ratio=values.get("logit_ratio"),
        logit_ratio_median=values.get("logit_ratio_median"),
        passage_loss=values.get("passage_loss"),
        english=values.get("english") or "",
        fluency_nll=values.get("fluency_nll"),
        judge=values.get("judge") or "",
        prompt=values.get("prompt") or "",
        output_text=values.get("output_text") or "",
        seconds=tuple((name, float(values[key])) for name, key in (*phases, *others) if values.get(key) is not None),
        memory_gb=tuple((name, float(amount)) for name, amount in memory if amount is not None),
        graphs=values.get("graphs"),
        compiled=values.get("compiled"),
    )


def _gb(amount: int | None) -> float | None:
    return None if amount is None else amount / GB


def _failure(line: Line, values: Mapping[str, Any]) -> Failure | None:
    if line.result == Result.PASS:
        return None
    known = reason_of(line.reason)
    return Failure(
        text=values.get("error") or values.get("exclusion") or line.why,
        stage=values.get("stage") or "",
        reason=line.reason,
        fault=line.fault,
        meaning=known.meaning if known else line.reason,
        advice=known.advice if known else "",
    )


# ---------------------------------------------------------------------------------- what to try next
def _suggestions(data: Catalog, line: Line, lines: Sequence[Line], forecasts: Sequence[Forecast]) -> tuple[Suggestion, ...]:
    """The nearest that works: the same versions on other cores, other versions, another target, models that are alike, a plan."""
    if line.result == Result.PASS:
        return ()
    passes = [other for other in lines if other.result == Result.PASS]
    found = [*_other_cores(line, passes), *_other_versions(data, line, passes), *_other_targets(line, passes)]
    found += [Suggestion(f"Forecast for {each.target}: {forecast_words(each)}") for each in _plans(line, forecasts)]
    if not passes:
        found += _alike(data, line)
    known = reason_of(line.reason)
    if known is not None:
        found.append(Suggestion(known.advice))
    elif not line.result and not found:
        found.append(Suggestion(f"Run `doesitrun test {line.model_id}` on a machine that has the device."))
    return tuple(found)


def _other_cores(line: Line, passes: Iterable[Line]) -> list[Suggestion]:
    here = [other for other in passes if other.pair == line.pair and other.cores != line.cores]
    near = sorted(here, key=lambda other: abs((other.cores or 0) - (line.cores or 0)))
    return [Suggestion(f"It runs on {_cores(other)} with the same versions.", other) for other in near[:1]]


def _other_versions(data: Catalog, line: Line, passes: Iterable[Line]) -> list[Suggestion]:
    """The nearest pair that works, a newer one before an older one that is as near."""
    places = {pair: number for number, pair in enumerate(data.pairs)}
    here = places.get(line.pair, len(places))
    others = [other for other in passes if other.target == line.target and other.pair != line.pair]
    near = sorted(others, key=lambda other: (abs(places[other.pair] - here), -places[other.pair]))
    return [Suggestion(f"It runs on {_cores(other)} with {pair_words(other.pair)}.", other) for other in near[:1]]


def _other_targets(line: Line, passes: Iterable[Line]) -> list[Suggestion]:
    others = {other.target: other for other in passes if other.target != line.target}
    return [Suggestion(f"It runs on {_cores(other)} ({target}).", other) for target, other in others.items()]


def _plans(line: Line, forecasts: Iterable[Forecast]) -> list[Forecast]:
    """Plans that say more than the row does: for what was not run, or for sizes that were not tried."""
    if line.result == Result.FAIL:
        return [each for each in forecasts if each.outcome == "plan" and each.target == line.target and each.cores != line.cores]
    return [each for each in forecasts if each.outcome == "plan"] if line.row is not None or not line.forecast else []


def _alike(data: Catalog, line: Line) -> list[Suggestion]:
    """Models of the same architecture that pass on this target: those nearest in size first."""
    if not line.architecture:
        return []
    same = np.flatnonzero(data.architecture.codes == data.architecture.code(line.architecture))
    columns = data.columns
    mask = np.isin(columns.model, same) & (columns.result.codes == columns.result.code(Result.PASS.value))
    mask &= columns.target.codes == columns.target.code(line.target)
    rows = data.speaking(np.flatnonzero(mask).astype(np.int32), Each.MODEL)
    size = line.weights_gb or 0.0
    distance = np.abs(np.nan_to_num(data.model_gb[columns.model[rows]], nan=np.inf) - size)
    found = rows_drawn(data, rows[np.argsort(distance, kind="stable")[:_ALIKE]])
    return [Suggestion(f"{other.model_id} of the same architecture runs on {_cores(other)}.", other) for other in found.values()]


def _cores(line: Line) -> str:
    device = f" of {line.device}" if line.device else ""
    return f"{line.cores or 'an unknown number of'} core{'' if line.cores == 1 else 's'}{device}"


def script_of(page: Page) -> str:
    """The script that ran. Raises ModelNotFoundError where none did."""
    if not page.run_py:
        message = f"No script of {page.model_id} is here: {page.line.why or 'this row carries none'} Run `doesitrun script` to make one."
        raise ModelNotFoundError(message)
    return page.run_py
