"""Dated files of a workspace: rankings, forecasts and selections.

rankings/<date>.parquet             records.Ranked: all tasks and orders of one day
plans/<date>/<target>.parquet       records.Forecast
selection/<date>/<target>.jsonl     select.Selected: the chosen ones in their order, then the excluded ones
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from doesitrun.errors import UsageError, WorkspaceError
from doesitrun.files import reaching, write_whole
from doesitrun.records import Forecast, Ranked, columns
from doesitrun.select import Selected
from doesitrun.store.table import MARK, arrow_type, clean_text

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
Record = TypeVar("Record", Ranked, Forecast)


# ---------------------------------------------------------------------------------- records and Parquet
def parquet_of(records: Iterable[Record], kind: type[Record]) -> bytes:
    """A Parquet file of the records, in their order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [(column.name, arrow_type(column.arrow)) for column in columns(kind)]
    table = pa.Table.from_pylist(
        [_clean(dataclasses.asdict(each)) for each in records], schema=pa.schema(fields, metadata={MARK: b"snapshot 1"})
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def _clean(values: dict[str, Any]) -> dict[str, Any]:
    return {name: clean_text(value) if isinstance(value, str) else value for name, value in values.items()}


def records_in(path: Path, kind: type[Record]) -> list[Record]:
    """The records of a file; columns of later versions are passed over, missing ones are None. Raises WorkspaceError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [column.name for column in columns(kind)]
    try:
        with reaching(path), pq.ParquetFile(path) as file:
            table = file.read([name for name in names if name in file.schema_arrow.names])
        return [kind(**{name: values.get(name) for name in names}) for values in table.to_pylist()]
    except pa.ArrowException as error:
        message = f"{path} is no Parquet file that can be read ({error}): delete it, then take the ranking again."
        raise WorkspaceError(message) from error


# ---------------------------------------------------------------------------------- rankings and forecasts
def write_ranking(root: Path, date: str, ranked: Sequence[Ranked]) -> Path:
    """Puts the lines into the day's file; older lines of the same task and order give way, the others stay."""
    path = root / "rankings" / f"{date}.parquet"
    new = {(line.task, line.by) for line in ranked}
    kept = [line for line in (records_in(path, Ranked) if path.exists() else []) if (line.task, line.by) not in new]
    lines = sorted([*kept, *ranked], key=lambda line: (line.task, line.by, line.rank))
    return _write(path, parquet_of(lines, Ranked))


def read_ranking(root: Path, date: str | None = None) -> tuple[str, list[Ranked]]:
    """The day and the lines of a ranking, by default of the newest. Raises WorkspaceError where there is none."""
    found = {path.stem: path for path in (root / "rankings").glob("*.parquet") if _DATE.fullmatch(path.stem)}
    day = _day(found, date, root / "rankings", "take one with `doesitrun rank`")
    return day, records_in(found[day], Ranked)


def write_forecasts(root: Path, date: str, target: str, forecasts: Sequence[Forecast]) -> Path:
    """Puts the lines into the day's file of the target; older lines of the same models give way, the others stay."""
    path = root / "plans" / date / f"{target}.parquet"
    known = {line.model_id: line for line in (records_in(path, Forecast) if path.exists() else [])}
    known |= {line.model_id: line for line in forecasts}
    return _write(path, parquet_of([known[name] for name in sorted(known)], Forecast))


def read_forecasts(root: Path, target: str, date: str) -> list[Forecast]:
    """The day's forecasts for a target; none where it was not planned for."""
    path = root / "plans" / date / f"{target}.parquet"
    return records_in(path, Forecast) if path.exists() else []


def planned_targets(root: Path, date: str) -> list[str]:
    """The targets that the day's models were planned for."""
    return sorted(path.stem for path in (root / "plans" / date).glob("*.parquet"))


# ---------------------------------------------------------------------------------- selections
def write_selection(root: Path, date: str, target: str, lines: Sequence[Selected]) -> Path:
    """The selection as a file of JSON lines, in the order given."""
    text = "".join(f"{json.dumps(line.to_json(), ensure_ascii=False)}\n" for line in lines)
    return _write(root / "selection" / date / f"{target}.jsonl", clean_text(text).encode())


def read_selection(root: Path, target: str, date: str | None = None) -> list[Selected]:
    """The lines of a target's selection, by default of the newest: chosen ones in their order, then the excluded ones.

    Raises WorkspaceError where there is none, or it is no such file.
    """
    found = {path.parent.name: path for path in (root / "selection").glob(f"*/{target}.jsonl") if _DATE.fullmatch(path.parent.name)}
    day = _day(found, date, root / "selection", f"make one with `doesitrun select --target {target}`")
    path = found[day]
    try:
        with reaching(path):
            lines = path.read_text(encoding="utf-8").splitlines()
        return [Selected.from_json(json.loads(line)) for line in lines if line.strip()]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"{path} is no selection ({str(error)[:200]}): make it again with `doesitrun select`."
        raise WorkspaceError(message) from error


# ---------------------------------------------------------------------------------- shared
def _day(found: Iterable[str], date: str | None, folder: Path, advice: str) -> str:
    days = sorted(found)
    if date is not None and not _DATE.fullmatch(date):
        raise UsageError(f"{date!r} is no date: write it as 2026-11-30.")
    if not days or (date is not None and date not in days):
        there = f"; there are {', '.join(days[-5:])}" if days else ""
        raise WorkspaceError(f"{folder} holds none{f' of {date}' if date else ''}{there}: {advice}.")
    return date or days[-1]


def _write(path: Path, data: bytes) -> Path:
    with reaching(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    return path
