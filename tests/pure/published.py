"""Small published datasets for tests of looking up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from doesitrun.outcomes import Reason, Result
from doesitrun.records import Forecast, Ranked, Row, columns
from doesitrun.store.table import arrow_type, to_parquet
from doesitrun.store.workspace import parquet_name

DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
OLD = ("2.27.1.0", "5.23.0")
NEW = ("2.28.0.0", "5.24.0")


def row(model: str = "Qwen/Qwen3-0.6B", result: Result = Result.PASS, versions: tuple[str, str] = NEW, day: int = 0, **values: Any) -> Row:
    """A row of neuron on trn2, on one core."""
    usual: dict[str, Any] = {
        "target": "neuron",
        "device": "trn2",
        "compiler": "neuronx-cc",
        "library": "transformers",
        "task": "text-generation",
        "cores": 1,
        "tp": 1,
        "revision": "0" * 40,
        "compiler_version": versions[0],
        "neuronx_cc": versions[0],
        "library_version": versions[1],
        "transformers": versions[1],
        "tested_at": DAY + timedelta(days=day),
        "rungs": "reference,executed,numbers" if result is Result.PASS else None,
        "reason": None if result is Result.PASS else Reason.DEVICE_OOM,
    }
    return Row(model_id=model, result=result, **{**usual, **values})


def publish(folder: Path, rows: Iterable[Row]) -> Path:
    """The rows in their files below the folder; what was there of these files is replaced."""
    files: dict[str, list[Row]] = {}
    for each in rows:
        files.setdefault(parquet_name(each), []).append(each)
    for name, found in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(".new")
        new.write_bytes(to_parquet(found))
        new.replace(path)
    return folder


def records(path: Path, lines: Iterable[Ranked | Forecast], record: type[Ranked | Forecast]) -> None:
    """A file of rankings or forecasts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = pa.schema([(column.name, arrow_type(column.arrow)) for column in columns(record)])
    pq.write_table(pa.Table.from_pylist([dataclasses.asdict(line) for line in lines], schema=fields), path)


def rank(folder: Path, *models: str, day: str = "2026-03-02", by: str = "trending", task: str = "text-generation") -> None:
    """A ranking of these models in their order."""
    lines = [Ranked(model, task, by, place, downloads=1000 // place, likes=place) for place, model in enumerate(models, 1)]
    records(folder / "rankings" / f"{day}.parquet", lines, Ranked)


def plan(folder: Path, *forecasts: Forecast, day: str = "2026-03-02") -> None:
    """Forecasts of one target."""
    records(folder / "plans" / day / f"{forecasts[0].target}.parquet", forecasts, Forecast)


def forecast(model: str, **values: Any) -> Forecast:
    """A plan for 4 cores of trn2."""
    usual: dict[str, Any] = {"outcome": "plan", "cores": 4, "tp": 4, "ep": 1, "sizes": [4, 8], "dtype": "bfloat16"}
    usual |= {"task": "text-generation", "target": "neuron", "device": "trn2", "architecture": "LlamaForCausalLM"}
    usual |= {"weights_bytes": 16 * 10**9, "max_rank_bytes": 5 * 10**9}
    return Forecast(model, **{**usual, **values})


def refused(model: str, reason: Reason, detail: str = "") -> Forecast:
    """A model without a plan."""
    none = {"cores": None, "tp": None, "ep": None, "sizes": None, "weights_bytes": None, "max_rank_bytes": None}
    return forecast(model, outcome="excluded", reason=reason.value, detail=detail, **none)
