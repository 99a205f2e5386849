"""Published files, read one by one: of each the light columns in memory, the heavy ones on demand.

A file that is open here stays readable when another takes its name, so rows in memory keep their scripts and errors.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from doesitrun.catalog.columns import values_of
from doesitrun.errors import WorkspaceError
from doesitrun.files import reaching
from doesitrun.records import Forecast, Ranked, columns
from doesitrun.store.table import arrow_type, in_todays_types, unbroken
from doesitrun.targets import TARGETS

VERSIONS = {column: distribution for target in TARGETS.values() for column, distribution in target.VERSION_COLUMNS.items()}
"""Columns with the versions of a target's own packages."""
LIGHT: Mapping[str, str] = {
    **dict.fromkeys(("model_id", "task", "target", "device", "result", "reason", "exclusion", "rungs", "revision"), "string"),
    **dict.fromkeys(("compiler", "compiler_version", "library", "library_version", "transformers", "architecture", *VERSIONS), "string"),
    **dict.fromkeys(("cores", "tp", "wall_s"), "int32"),
    **dict.fromkeys(("hbm_peak_gb", "warm_run_s"), "float64"),
    "weights_bytes": "int64",
    "tested_at": "timestamp[ms, UTC]",
}
"""Columns that are kept in memory, with their types."""
SHOWN_CHARACTERS = 300
"""What is kept of an exclusion: the whole text is on the model's page."""
KEPT_OPEN = 256
"""Files that are kept open; what lies beyond is opened again by its name."""
_BATCH_ROWS = 1024

Signature: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class DataFile:
    """A file of rows: its light columns, and a way to whole rows."""

    name: str
    """Path below the place that was opened."""
    path: Path
    signature: Signature
    light: pa.Table
    """The columns of LIGHT, in the order of `numbers`."""
    numbers: pa.Array
    """Of each row of `light` its place in the file, as whole numbers."""
    handle: pq.ParquetFile | None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def whole(self, number: int) -> dict[str, Any]:
        """Every column of one row, in today's types. Raises WorkspaceError when the file can no longer be read."""
        place = int(self.numbers[number].as_py())
        with self.lock, unbroken(self.path):
            if self.handle is not None:
                return _row_at(self.handle, place, self.path)
            with pq.ParquetFile(self.path) as file:
                return _row_at(file, place, self.path)


@dataclass(frozen=True)
class Broken:
    """A file that cannot be read now, and why."""

    signature: Signature
    problem: str


def signature(path: Path) -> Signature:
    """What differs when a file was written anew."""
    found = path.stat()
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def row_files(root: Path) -> list[Path]:
    """The Parquet files of rows at a workspace, a folder or a file. Raises WorkspaceError when there is no such place."""
    with reaching(root):
        if root.is_file():
            return [root]
        if not root.is_dir():
            message = f"There is no {root}: name a workspace, a folder of Parquet files or hf://datasets/ORG/NAME."
            raise WorkspaceError(message)
        folder = root / "data"
        if folder.is_dir():
            return _parquet(folder)
        others = ("rankings", "plans", "attempts")
        return [path for path in _parquet(root) if path.relative_to(root).parts[0] not in others]


def ranking_files(root: Path) -> list[Path]:
    """rankings/DATE.parquet, the newest first."""
    with reaching(root):
        return sorted(_parquet(root / "rankings"), reverse=True)


def plan_files(root: Path) -> dict[str, list[Path]]:
    """plans/DATE/TARGET.parquet by target, the newest first."""
    found: dict[str, list[Path]] = {}
    with reaching(root):
        for path in sorted(_parquet(root / "plans"), reverse=True):
            found.setdefault(path.stem, []).append(path)
    return found


def _parquet(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.parquet") if not path.name.startswith(".") and path.is_file())


def read_rows(path: Path, name: str, *, keep_open: bool) -> DataFile:
    """A file of rows. Pending rows, emulated ones and those without a model are left out. Raises WorkspaceError."""
    with unbroken(path):
        was = signature(path)
        handle = pq.ParquetFile(pa.OSFile(str(path)))
        wanted = [column for column in dict.fromkeys(handle.schema_arrow.names) if column in LIGHT]
        table = handle.read(columns=wanted)
        table.validate(full=True)  # text that is no UTF-8 would fail later, in the middle of an answer
    light = _completed(in_todays_types(table, path))
    kept = pc.and_(pc.is_valid(light["model_id"]), pc.is_valid(light["result"]))
    for column in VERSIONS:
        real = pc.or_kleene(pc.is_null(light[column]), pc.invert(pc.match_substring(light[column], "emulated")))
        kept = pc.and_(kept, real)
    numbers = pc.indices_nonzero(kept)
    return DataFile(name, path, was, light.take(numbers).combine_chunks(), numbers, handle if keep_open else None)


def _completed(table: pa.Table) -> pa.Table:
    """The columns of LIGHT in their types; what older files do not say is taken from what they do say."""
    found: dict[str, pa.ChunkedArray] = {}
    for name, kind in LIGHT.items():
        column = table.column(name) if name in table.column_names else pa.nulls(table.num_rows, arrow_type(kind))
        found[name] = column.cast(arrow_type(kind)) if column.type != arrow_type(kind) else column
    for name, target in TARGETS.items():
        for column, distribution in target.VERSION_COLUMNS.items():
            complete = not any(found[told].null_count for told in ("target", "compiler", "compiler_version"))
            if complete or distribution != target.COMPILER or found[column].null_count == table.num_rows:
                continue
            there = pc.and_(pc.is_valid(found[column]), pc.fill_null(pc.equal(found["target"], name), fill_value=True))
            for missing, value in (("target", name), ("compiler", target.COMPILER), ("compiler_version", found[column])):
                found[missing] = pc.if_else(pc.and_(there, pc.is_null(found[missing])), value, found[missing])
    found["cores"] = pc.coalesce(found["cores"], found["tp"])
    found["library_version"] = pc.coalesce(found["library_version"], found["transformers"])
    found["exclusion"] = pc.utf8_slice_codeunits(found["exclusion"], 0, SHOWN_CHARACTERS)
    return pa.table(found)


def _row_at(file: pq.ParquetFile, place: int, path: Path) -> dict[str, Any]:
    group, before = _group_of(file.metadata, place)
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group]):
        if place < before + batch.num_rows:
            one = pa.Table.from_batches([batch.slice(place - before, 1)])
            one.validate(full=True)
            whole = in_todays_types(one, path)
            return {name: values_of(column)[0] for name, column in zip(whole.column_names, whole.columns, strict=True)}
        before += batch.num_rows
    message = f"{path} has no row {place} any more: open the data again."
    raise WorkspaceError(message)


def _group_of(metadata: pq.FileMetaData, place: int) -> tuple[int, int]:
    """(row group of a row, number of the group's first row)."""
    before = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if place < before + rows:
            return group, before
        before += rows
    return max(0, metadata.num_row_groups - 1), before


# ---------------------------------------------------------------------------------- rankings and plans
def read_record(path: Path, record: type[Ranked | Forecast]) -> pa.Table:
    """A file of rankings or forecasts with today's columns in today's types; lines without a model are left out.

    Raises WorkspaceError.
    """
    with unbroken(path), pq.ParquetFile(path) as file:
        known = {column.name: arrow_type(column.arrow) for column in columns(record)}
        table = file.read(columns=[name for name in dict.fromkeys(file.schema_arrow.names) if name in known])
        table.validate(full=True)
        found = {
            name: table.column(name).cast(kind) if name in table.column_names else pa.nulls(table.num_rows, kind)
            for name, kind in known.items()
        }
        whole = pa.table(found)
        return whole.filter(pc.is_valid(whole["model_id"])).combine_chunks()
