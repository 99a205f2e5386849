"""The Parquet files of a dataset as they lie in a folder: what past runs took, rows by what they are about, differences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doesitrun.errors import WorkspaceError
from doesitrun.files import reaching
from doesitrun.outcomes import Result
from doesitrun.records import COLUMNS, Row
from doesitrun.select import Timed
from doesitrun.store.table import read_table, schema, to_parquet

if TYPE_CHECKING:
    import pyarrow as pa

FOLDERS = ("data", "rankings", "plans")
"""What of a workspace is published, besides its card."""
KEYS = {
    "data": ("model_id", "plan_id", "target", "task", "tp"),
    "rankings": ("task", "by", "rank"),
    "plans": ("model_id", "task", "device"),
}
"""What a row is about, by the folder of its file: a row that is gone has no other of the same in the new file."""


@dataclass(frozen=True)
class Difference:
    """What becomes of one file, in rows."""

    path: str
    rows_there: int
    rows_here: int
    added: int
    changed: int
    lost: int
    what: str
    """new, changed, unchanged, upgraded (older columns, brought to today's) or kept (there, and not here)."""


def published_files(root: Path) -> dict[str, bytes]:
    """The files of a workspace that are published, by their path in the dataset. Raises WorkspaceError."""
    with reaching(root):
        paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.parquet")) if path.is_file()]
        hidden = [path for path in paths if any(part.startswith(".") for part in path.relative_to(root).parts)]
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths if path not in hidden}


def timed_runs(root: Path, target: str) -> list[Timed]:
    """Past runs on a target that ended by themselves, from the dataset's files; those without figures are left out."""
    names = ["weights_bytes", "cores", "wall_s", "result"]
    found: list[Timed] = []
    for path in sorted((root / "data" / target).glob("*/*.parquet")):
        rows = read_table(path).select(names).to_pylist()
        found += [
            Timed(row["weights_bytes"], row["cores"], float(row["wall_s"]))
            for row in rows
            if row["weights_bytes"] and row["cores"] and row["wall_s"] and row["result"] in (Result.PASS, Result.FAIL)
        ]
    return found


def rows_in(path: Path) -> list[Row]:
    """The rows of a file of any shape. Raises WorkspaceError, also for a result or reason that is on no list."""
    found = []
    names = [column.name for column in COLUMNS]
    for number, values in enumerate(read_table(path).select(names).to_pylist(), 1):
        tested_at = values["tested_at"]
        try:
            found.append(Row.from_json(values | {"tested_at": tested_at.isoformat() if tested_at else None}))
        except ValueError as error:
            raise WorkspaceError(f"Row {number} of {path} is none that we know ({error}): mend the file, or move it away.") from error
    return found


def is_todays(path: Path) -> bool:
    """True when the file has exactly today's columns, in their order and types."""
    return bool(_table(path).schema.equals(schema()))


def todays(path: Path) -> bytes:
    """A data file of any shape with today's columns and no others."""
    return to_parquet(rows_in(path))


def difference(path: str, here: Path | None, there: Path | None) -> Difference:
    """What becomes of a file, by the rows that lie here and in the repository."""
    old, new = _by_key(path, there), _by_key(path, here)
    if here is None:
        return Difference(path, sum(map(len, old.values())), 0, 0, 0, 0, "kept")
    lost = sum(max(0, len(rows) - len(new.get(key, ()))) for key, rows in old.items())
    added = sum(max(0, len(rows) - len(old.get(key, ()))) for key, rows in new.items())
    changed = sum(_unlike(rows, old[key]) for key, rows in new.items() if key in old)
    what = "new" if there is None else "changed" if added or changed or lost else "unchanged"
    return Difference(path, sum(map(len, old.values())), sum(map(len, new.values())), added, changed, lost, what)


def _unlike(new: list[str], old: list[str]) -> int:
    return sum(a != b for a, b in zip(sorted(new), sorted(old), strict=False))


def _by_key(path: str, file: Path | None) -> Mapping[tuple[Any, ...], list[str]]:
    """The rows of a file as text, by what they are about."""
    if file is None:
        return {}
    folder = path.partition("/")[0]
    table = read_table(file) if folder == "data" else _table(file)
    names = [name for name in KEYS[folder] if name in table.column_names]
    found: dict[tuple[Any, ...], list[str]] = {}
    for row in table.to_pylist():
        found.setdefault(tuple(row[name] for name in names), []).append(json.dumps(row, default=str, sort_keys=True))
    return found


def _table(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with reaching(path), pq.ParquetFile(path) as file:
            return file.read()
    except pa.ArrowException as error:
        raise WorkspaceError(f"{path} is no Parquet file that can be read ({error}): delete it, or fetch it again.") from error


def unproved(rows: Mapping[str, list[Row]]) -> str:
    """The sentence that names a PASS which rests on no run, or a row of an emulated device; empty where there is none."""
    for path, each in rows.items():
        for row in each:
            if row.result is Result.PASS and not row.run_id:
                return f"{path} has a PASS for {row.model_id} without a run id: only what was run is published. Delete that row."
            if row.is_emulated:
                return f"{path} has a row of an emulated device, {row.model_id}, which proves nothing: delete the file."
    return ""
