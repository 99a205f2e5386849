"""From files that were read to a catalog; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from doesitrun.catalog.answers import Pair
from doesitrun.catalog.columns import Coded, Codes, Numbers, at, coded, firsts, moments, names_of, numbers, version_key
from doesitrun.catalog.reading import LIGHT, DataFile
from doesitrun.catalog.snapshot import GB, RESULTS, Catalog, Columns, Plans, Ranking
from doesitrun.outcomes import Fault, Reason, Result
from doesitrun.store.table import arrow_type
from doesitrun.tasks import TASKS

BYTES_PER_PARAMETER = 2
"""As loaded in bfloat16: where only the Hub's count of parameters is known."""


def build(
    version: int,
    loaded_at: datetime,
    notices: Sequence[str],
    files: Sequence[DataFile],
    rankings: Sequence[tuple[str, pa.Table]],
    plans: Mapping[str, Sequence[pa.Table]],
) -> Catalog:
    """The catalog of what was read. `rankings` are by day, the newest first; `plans` are by target, the newest first."""
    rows = _together(files)
    ranked = _newest([table for _, table in rankings], ("task", "by"))
    planned = {target: _newest(tables, ("model_id",)) for target, tables in plans.items()}
    lines = [*([ranked] if rankings else []), *planned.values()]
    names, (model, *models) = names_of([rows["model_id"], *(table["model_id"] for table in lines)])
    columns, pairs = _columns(rows, model, files)
    of_ranked = models[: len(models) - len(planned)]
    of_planned = dict(zip(planned, models[len(of_ranked) :], strict=True))
    # What is said of models, the most trusted last.
    known = [(of, ranked["architecture"], numbers(ranked["parameters"]) * BYTES_PER_PARAMETER / GB) for of in of_ranked]
    known += [(of_planned[target], table["architecture"], numbers(table["weights_bytes"]) / GB) for target, table in planned.items()]
    known.append((model, rows["architecture"], columns.weights_gb))
    architecture, model_gb = _of_models(known, len(names))
    return Catalog(
        version=version,
        loaded_at=loaded_at,
        notices=tuple(notices),
        files=tuple(files),
        names=names,
        columns=_taken(columns, _order(columns, pairs)),
        pairs=pairs,
        ranking=_ranking(rankings[0][0], ranked, of_ranked[0]) if rankings else None,
        plans={target: _plans(target, table, of_planned[target], len(names)) for target, table in planned.items()},
        architecture=architecture,
        model_gb=model_gb,
    )


def _newest(tables: Sequence[pa.Table], by: Sequence[str]) -> pa.Table:
    """The lines of all tables but those that a table before has, too: lines with the same texts in the columns `by`."""
    if len(tables) < 2:
        return tables[0] if tables else None
    together = pa.concat_tables(tables)
    place = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    key = np.zeros(len(place), np.int64)
    for name in by:
        column = coded(together[name])
        key = key * len(column.values) + column.codes
    first = np.full(int(key.max(initial=0)) + 1, len(tables))
    np.minimum.at(first, key, place)
    return together.take(at(np.flatnonzero(place == first[key]))).combine_chunks()


def _together(files: Sequence[DataFile]) -> pa.Table:
    nothing = pa.table({name: pa.nulls(0, arrow_type(kind)) for name, kind in LIGHT.items()})
    return pa.concat_tables([nothing, *(file.light for file in files)])


def _columns(rows: pa.Table, model: Codes, files: Sequence[DataFile]) -> tuple[Columns, tuple[Pair, ...]]:
    by_version = {name: coded(rows[name], version_key) for name in ("compiler_version", "library_version")}
    plain = {name: coded(rows[name]) for name in ("task", "target", "device", "reason", "rungs", "compiler", "library")}
    pair, pairs = _pairs(
        [plain["target"], plain["compiler"], by_version["compiler_version"], plain["library"], by_version["library_version"]]
    )
    counts = [file.light.num_rows for file in files]
    result = coded(rows["result"], first=RESULTS)
    columns = Columns(
        model=model,
        **plain,
        **by_version,
        result=result,
        revision=coded(rows["revision"]).codes,
        pair=pair,
        cores=numbers(rows["cores"]),
        wall_s=numbers(rows["wall_s"]),
        peak_gb=numbers(rows["hbm_peak_gb"]),
        warm_run_s=numbers(rows["warm_run_s"]),
        weights_gb=numbers(rows["weights_bytes"]) / GB,
        tested_at=moments(rows["tested_at"]),
        tier=_tier(result, plain["reason"]),
        exclusion=rows["exclusion"].combine_chunks(),
        file=np.repeat(np.arange(len(files), dtype=np.int32), counts),
        number=np.concatenate([np.zeros(0, np.int32), *(np.arange(count, dtype=np.int32) for count in counts)]),
    )
    return columns, pairs


def _pairs(parts: Sequence[Coded]) -> tuple[Codes, tuple[Pair, ...]]:
    """Of each row its pair, and the pairs: the texts of each part are in their order, so the pairs come out in theirs."""
    key = np.zeros(len(parts[0].codes), np.int64)
    for part in parts:
        key = key * len(part.values) + part.codes
    found, pair = np.unique(key, return_inverse=True)
    pairs = []
    for value in found.tolist():
        texts, rest = [], value
        for part in reversed(parts):
            rest, code = divmod(rest, len(part.values))
            texts.append(part.values[code])
        pairs.append(Pair(*reversed(texts)))
    return pair.astype(np.int32), tuple(pairs)


# ---------------------------------------------------------------------------------- the order of rows
def _order(columns: Columns, pairs: Sequence[Pair]) -> Codes:
    """The rows in a catalog's order; see `snapshot`."""
    group = columns.group(len(pairs))
    age = np.nan_to_num(-columns.tested_at, nan=np.inf)
    late = np.lexsort((age, columns.tier, group))
    newest_revision = np.empty(len(group), np.int64)
    starts = firsts(group[late])
    newest_revision[late] = columns.revision[late][starts][np.cumsum(starts) - 1] if len(group) else []
    stale = columns.revision != newest_revision
    no_pass = columns.result.codes != columns.result.code(Result.PASS.value)
    cores = np.where(no_pass, 0.0, np.nan_to_num(columns.cores, nan=np.inf))
    found: Codes = np.lexsort((age, cores, no_pass, stale, columns.tier, group)).astype(np.int32)
    return found


def _tier(result: Coded, reason: Coded) -> npt.NDArray[np.int8]:
    chosen = [each.value for each in Reason if each.fault is Fault.CHOICE]
    by_choice = np.isin(reason.codes, [reason.code(value) for value in chosen if value in reason.values])
    tier = np.where(by_choice, 1, 0).astype(np.int8)
    tier[result.codes == result.code(Result.INCONCLUSIVE.value)] = 2
    return tier


def _taken(columns: Columns, order: Codes) -> Columns:
    taken: dict[str, Any] = {}
    for field in dataclasses.fields(columns):
        value = getattr(columns, field.name)
        if isinstance(value, Coded):
            taken[field.name] = Coded(value.values, value.codes[order])
        elif isinstance(value, np.ndarray):
            taken[field.name] = value[order]
        else:
            taken[field.name] = value.take(at(order))
    return Columns(**taken)


# ---------------------------------------------------------------------------------- what is known of models
def _of_models(known: Sequence[tuple[Codes, pa.ChunkedArray, Numbers]], count: int) -> tuple[Coded, Numbers]:
    """Of each model its architecture and its size: what is said last of it counts."""
    model = np.concatenate([part[0] for part in known])
    said = coded(pa.chunked_array([chunk for part in known for chunk in part[1].chunks], pa.string()))
    nothing = said.code("")
    architecture = np.full(count, nothing, np.int32)
    there = said.codes != nothing
    architecture[model[there]] = said.codes[there]
    size = np.concatenate([part[2] for part in known])
    weights_gb = np.full(count, np.nan)
    there = size > 0
    weights_gb[model[there]] = size[there]
    return Coded(said.values, architecture), weights_gb


def _ranking(day: str, lines: pa.Table, model: Codes) -> Ranking:
    """The lines task by task, those that we know first, and within a task in the Hub's order."""
    task, rank, known = coded(lines["task"]), numbers(lines["rank"]), list(TASKS)
    task_order = np.array([known.index(name) if name in known else len(known) for name in task.values])
    order = np.lexsort((rank, task.codes, task_order[task.codes])).astype(np.int32)
    by = coded(lines["by"])
    return Ranking(
        day=day,
        model=model[order],
        task=Coded(task.values, task.codes[order]),
        by=Coded(by.values, by.codes[order]),
        rank=rank[order],
        downloads=numbers(lines["downloads"])[order],
        likes=numbers(lines["likes"])[order],
    )


def _plans(target: str, table: pa.Table, model: Codes, count: int) -> Plans:
    of_model = np.full(count, -1, np.int32)
    of_model[model[::-1]] = np.arange(len(model), dtype=np.int32)[::-1]  # of several lines the first counts
    return Plans(target, table, of_model, model, coded(table["reason"]))
