"""Rows as Arrow tables, and every table ever published as one of today's shape.

The schema is derived from `records.COLUMNS`. Nothing is written here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doesitrun.errors import WorkspaceError
from doesitrun.files import reaching
from doesitrun.records import COLUMNS, SCHEMA_VERSION, Row

if TYPE_CHECKING:
    import pyarrow as pa

MARK = b"doesitrun"
"""Key in a Parquet file's metadata: the version of its columns."""
GROUP_ROWS = 500
"""Rows that are turned into Arrow at a time: each holds its whole run.py, and a harness's memory should not grow with them."""


# ---------------------------------------------------------------------------------- values
def clean_text(text: str) -> str:
    """The text as UTF-8 can hold it: surrogate pairs are joined, a lone surrogate becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        message = "is no text"
        raise TypeError(message)
    return clean_text(str(value))


def _whole(bits: int) -> Callable[[Any], int]:
    def whole(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            message = "is no whole number"
            raise TypeError(message)
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            message = f"does not fit {bits} bits"
            raise ValueError(message)
        return int(value)

    return whole


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        message = "is no number"
        raise TypeError(message)
    return float(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        message = "is neither true nor false"
        raise TypeError(message)
    return value


def _moment(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        message = "is no time with its zone"
        raise TypeError(message)
    utc = value.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def _wholes(value: Any) -> list[int]:
    if not isinstance(value, list | tuple):
        message = "is no list of numbers"
        raise TypeError(message)
    return [_whole(32)(item) for item in value]


_FIT: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "int32": _whole(32),
    "int64": _whole(64),
    "float64": _real,
    "bool": _truth,
    "timestamp[ms, UTC]": _moment,
    "list<int32>": _wholes,
}


def fitted(row: Row) -> Row:
    """The row as its columns can hold it: text without lone surrogates, times in UTC and whole milliseconds.

    Raises ValueError, naming the column, for a value that is of another kind or too large.
    """
    values: dict[str, Any] = {}
    for column in COLUMNS:
        value = getattr(row, column.name)
        try:
            values[column.name] = None if value is None else _FIT[column.arrow](value)
        except (TypeError, ValueError, OverflowError) as error:
            message = f"column {column.name} ({column.arrow}) holds {_short(value)}, which {error}"
            raise ValueError(message) from error
    return Row.from_json(dataclasses.replace(row, **values).to_json())


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of thousands of digits
        return "a huge number"
    return text if len(text) <= 60 else f"{text[:60]}..."


# ---------------------------------------------------------------------------------- rows to a table
def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a column, from the text in `records.COLUMNS`."""
    import pyarrow as pa

    special = {"timestamp[ms, UTC]": pa.timestamp("ms", "UTC"), "list<int32>": pa.list_(pa.int32())}
    return special.get(name) or pa.type_for_alias(name)


def schema() -> pa.Schema:
    """Today's columns, marked as ours in the metadata."""
    import pyarrow as pa

    return pa.schema([(c.name, arrow_type(c.arrow)) for c in COLUMNS], metadata={MARK: f"schema {SCHEMA_VERSION}".encode()})


def to_parquet(rows: Iterable[Row]) -> bytes:
    """A Parquet file of the rows in the order of model, plan and attempt; the same rows give the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ordered = sorted(rows, key=lambda row: (row.model_id or "", row.plan_id or "", row.attempt or 0))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema(), compression="zstd") as writer:
        for start in range(0, max(1, len(ordered)), GROUP_ROWS):
            # to_json turns enums into their text; times stay as they are, so that no text of a time is parsed.
            records = [row.to_json() | {"tested_at": row.tested_at} for row in ordered[start : start + GROUP_ROWS]]
            writer.write_table(pa.Table.from_pylist(records, schema=schema()))
    return bytes(sink.getvalue())


# ---------------------------------------------------------------------------------- old files to a table
def read_table(place: Path) -> pa.Table:
    """Every row that lies at `place`, with today's columns in today's types, unknown columns behind them.

    `place` is a Parquet file, a workspace (its data folder is read), or any other folder of Parquet files.
    What a file lacks is null there. Raises WorkspaceError for a file that cannot be read or does not fit.
    """
    return read_files(_parquet_files(place))


def read_files(paths: Iterable[Path]) -> pa.Table:
    """The rows of some files, as `read_table` gives them."""
    import pyarrow as pa

    tables = [schema().empty_table(), *map(_today, paths)]
    names = list(dict.fromkeys(name for table in tables for name in table.column_names))
    fields = [_common_field(name, tables) for name in names]
    merged = pa.schema(fields, metadata=schema().metadata)
    return pa.concat_tables([_shaped(table, merged) for table in tables])


def _parquet_files(place: Path) -> list[Path]:
    with reaching(place):
        if not place.is_dir():
            if place.is_file():
                return [place]
            message = f"There is no {place}: name a Parquet file, or a folder that holds some."
            raise WorkspaceError(message)
        folder = place / "data" if (place / "data").is_dir() else place
        return sorted(path for path in folder.rglob("*.parquet") if path.is_file() and not path.name.startswith("."))


def _today(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    with unbroken(path), pq.ParquetFile(path) as file:  # not read_table: it makes columns of folders named a=b
        table = file.read()
    return in_todays_types(table, path)


@contextmanager
def unbroken(path: Path) -> Iterator[None]:
    """Turns what Arrow says of a damaged or unreachable file into a WorkspaceError."""
    import pyarrow as pa

    try:
        with reaching(path):
            yield
    except (pa.ArrowException, UnicodeDecodeError) as error:  # the latter for names of columns
        message = f"{path} is no Parquet file that can be read ({error}): delete it, or fetch it again."
        raise WorkspaceError(message) from error


def in_todays_types(table: pa.Table, path: Path) -> pa.Table:
    """The columns that we know in today's types; the others as they are, behind them. `path` is for the message.

    Raises WorkspaceError for a value that its column cannot hold.
    """
    import pyarrow as pa

    first = {name: table.column(table.schema.get_all_field_indices(name)[0]) for name in dict.fromkeys(table.column_names)}
    known = {c.name: _cast(first[c.name], c.name, c.arrow, path) for c in COLUMNS if c.name in first}
    return pa.table(known | {name: values for name, values in first.items() if name not in known})


def _cast(values: pa.ChunkedArray, name: str, arrow: str, path: Path) -> pa.ChunkedArray:
    import pyarrow as pa

    kind = arrow_type(arrow)
    if values.type == kind:
        return values
    try:
        return values.cast(kind, safe=not arrow.startswith("timestamp"))  # of a time, parts of a millisecond may go
    except pa.ArrowException:
        pass
    try:
        return pa.chunked_array([pa.array([None if v is None else _LOOSE[arrow](v) for v in values.to_pylist()], kind)])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        message = f"Column {name} of {path} holds {values.type} that is no {arrow} ({error}): mend the file, or move it away."
        raise WorkspaceError(message) from error


def _as_text(value: Any) -> str:
    return clean_text(value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False))


def _as_moment(value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


_LOOSE: dict[str, Callable[[Any], Any]] = {
    "string": _as_text,
    "int32": lambda value: round(float(value)),
    "int64": lambda value: round(float(value)),
    "float64": float,
    "bool": _truth,
    "timestamp[ms, UTC]": _as_moment,
    "list<int32>": lambda value: json.loads(value) if isinstance(value, str) else list(value),
}


def _common_field(name: str, tables: list[pa.Table]) -> pa.Field:
    """The column in a type that holds it in every table; text where the types have nothing in common."""
    import pyarrow as pa

    declared = {c.name: c.arrow for c in COLUMNS}
    if name in declared:
        return pa.field(name, arrow_type(declared[name]))
    kinds = {t.schema.field(name).type for t in tables if name in t.column_names}
    if len(kinds) > 1 and any(pa.types.is_nested(kind) for kind in kinds):
        return pa.field(name, pa.string())
    try:
        return pa.unify_schemas([pa.schema([(name, kind)]) for kind in kinds], promote_options="permissive").field(0)
    except pa.ArrowException:
        return pa.field(name, pa.string())


def _shaped(table: pa.Table, merged: pa.Schema) -> pa.Table:
    import pyarrow as pa

    def values(field: pa.Field) -> Any:
        if field.name not in table.column_names:
            return pa.nulls(table.num_rows, field.type)
        column = table.column(field.name)
        if column.type == field.type:
            return column
        try:
            return column.cast(field.type, safe=False)  # a whole number beyond 2^53 loses digits in a column of reals
        except pa.ArrowException:
            return pa.array([None if v is None else _as_text(v) for v in column.to_pylist()], pa.string())

    return pa.Table.from_arrays([values(field) for field in merged], schema=merged)
