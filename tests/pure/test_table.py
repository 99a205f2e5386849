"""Rows as Arrow tables, and every table ever published as one of today's shape."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doesitrun.errors import WorkspaceError
from doesitrun.outcomes import Reason, Result, Stage
from doesitrun.records import COLUMNS, Blame, Row
from doesitrun.store.table import MARK, arrow_type, clean_text, fitted, read_table, schema, to_parquet

# The reference dataset's columns and types as they are published today, and an older shape of it.
REFERENCE = [
    *((name, pa.string()) for name in ("model_id", "library")),
    ("tp", pa.int32()),
    *((name, pa.string()) for name in ("runner", "result", "notes", "error", "exclusion")),
    ("wall_s", pa.int32()),
    ("hbm_peak_gb", pa.float64()),
    ("hbm_capacity_gb", pa.float64()),
    *((name, pa.string()) for name in ("cpu_match", "english", "neuronx_cc", "library_version", "transformers", "accelerate")),
    *((name, pa.string()) for name in ("torch_neuronx", "torch", "nki", "python", "neuron_driver")),
    ("tested_at", pa.timestamp("ms", "UTC")),
    ("run_py", pa.string()),
]
LATER = ("nki", "neuron_driver", "run_py", "exclusion")
OLDER = [(name, {"tp": pa.int64(), "wall_s": pa.float64(), "tested_at": pa.string()}.get(name, kind)) for name, kind in REFERENCE]
OLDER = [(name, kind) for name, kind in OLDER if name not in LATER] + [("instance_type", pa.string())]
MOMENT = datetime(2026, 3, 1, 12, 30, 15, 123000, tzinfo=UTC)


def write(path: Path, fields: list, values: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([values], schema=pa.schema(fields)), path)
    return path


def reference_files(root: Path) -> None:
    shared = {"model_id": "org/model", "library": "transformers", "result": "PASS", "tp": 4, "cpu_match": "17/32"}
    write(root / "data/a.parquet", REFERENCE, shared | {"wall_s": 7, "tested_at": MOMENT, "run_py": "print()"})
    older = shared | {"wall_s": 61.0, "tested_at": "2026-03-01T12:30:15.123456+00:00", "instance_type": "trn2.3xlarge"}
    write(root / "data/old/b.parquet", OLDER, older)


def test_every_column_has_an_arrow_type() -> None:
    assert [(field.name, field.type) for field in schema()] == [(c.name, arrow_type(c.arrow)) for c in COLUMNS]


def test_the_reference_datasets_columns_come_first_in_their_types() -> None:
    assert [(field.name, field.type) for field in schema()][:24] == REFERENCE


def test_both_shapes_of_the_reference_load_together_with_ours(tmp_path: Path) -> None:
    reference_files(tmp_path)
    ours = Row(model_id="org/model", result=Result.FAIL, reason=Reason.CRASH, output_tokens=[1, 2])
    (tmp_path / "data/ours.parquet").write_bytes(to_parquet([ours]))
    table = read_table(tmp_path)
    assert table.column_names == [*(c.name for c in COLUMNS), "instance_type"]
    assert table.schema.types[:-1] == schema().types
    old = next(row for row in table.to_pylist() if row["instance_type"])
    assert (old["tp"], old["wall_s"], old["tested_at"], old["run_py"], old["plan_id"]) == (4, 61, MOMENT, None, None)
    assert sorted(table.column("result").to_pylist()) == ["FAIL", "PASS", "PASS"]


def test_one_file_loads_by_its_path(tmp_path: Path) -> None:
    path = write(tmp_path / "x=1" / "old.parquet", OLDER, {"model_id": "m", "instance_type": "i"})
    assert read_table(path).column_names == [*(c.name for c in COLUMNS), "instance_type"]


def test_a_folder_without_files_gives_todays_columns_and_no_row(tmp_path: Path) -> None:
    table = read_table(tmp_path)
    assert (table.num_rows, table.schema) == (0, schema())


def test_unknown_columns_of_unlike_types_become_text(tmp_path: Path) -> None:
    for number, (kind, value) in enumerate([(pa.int64(), 2**60), (pa.list_(pa.string()), ["a", "é"]), (pa.string(), "text")]):
        write(tmp_path / f"{number}.parquet", [("model_id", pa.string()), ("extra", kind)], {"model_id": "m", "extra": value})
    assert read_table(tmp_path).column("extra").to_pylist() == [str(2**60), '["a", "é"]', "text"]


@pytest.mark.parametrize(
    ("name", "kind", "value", "today"),
    [
        ("model_id", pa.large_string(), "m", "m"),
        ("model_id", pa.dictionary(pa.int8(), pa.string()), "m", "m"),
        ("model_id", pa.null(), None, None),
        ("tp", pa.uint64(), 3, 3),
        ("tp", pa.string(), "3", 3),
        ("wall_s", pa.float64(), 61.7, 62),
        ("english", pa.bool_(), True, "true"),
        ("error", pa.struct([("kind", pa.string())]), {"kind": "é"}, '{"kind": "é"}'),
        ("tested_at", pa.timestamp("ns"), MOMENT.replace(tzinfo=None, microsecond=123456), MOMENT),
        ("tested_at", pa.string(), "2026-03-01 12:30:15.123", MOMENT),
        ("output_tokens", pa.list_(pa.int64()), [1, 2], [1, 2]),
        ("output_tokens", pa.string(), "[1, 2]", [1, 2]),
    ],
)
def test_other_types_of_a_known_column_are_cast(tmp_path: Path, name: str, kind: pa.DataType, value: object, today: object) -> None:
    assert read_table(write(tmp_path / "f.parquet", [(name, kind)], {name: value})).column(name).to_pylist() == [today]


@pytest.mark.parametrize(
    ("name", "kind", "value"), [("tp", pa.int64(), 2**40), ("tp", pa.string(), "four"), ("compiled", pa.string(), "maybe")]
)
def test_a_value_that_no_cast_can_save_is_named(tmp_path: Path, name: str, kind: pa.DataType, value: object) -> None:
    path = write(tmp_path / "f.parquet", [(name, kind)], {name: value})
    with pytest.raises(WorkspaceError, match=rf"Column {name} of .*f\.parquet"):
        read_table(path)


def test_a_damaged_file_and_a_missing_one_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "f.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(WorkspaceError, match="no Parquet file that can be read"):
        read_table(tmp_path)
    with pytest.raises(WorkspaceError, match="There is no"):
        read_table(tmp_path / "absent")


def test_the_same_rows_give_the_same_bytes_in_any_order() -> None:
    rows = [Row(model_id=f"m{n % 3}", plan_id=f"p{n}", attempt=1, tested_at=MOMENT) for n in range(20)]
    assert to_parquet(rows) == to_parquet(reversed(rows))
    table = pq.read_table(io.BytesIO(to_parquet(rows)))
    assert table.column("plan_id").to_pylist() == [row.plan_id for row in sorted(rows, key=lambda r: (r.model_id, r.plan_id))]
    assert table.schema.metadata[MARK] == b"schema 1"


def test_files_are_compressed_with_zstd() -> None:
    file = pq.ParquetFile(io.BytesIO(to_parquet([Row(run_py="x" * 1000)])))
    assert {file.metadata.row_group(0).column(i).compression for i in range(file.metadata.num_columns)} == {"ZSTD"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"tp": 2**31}, r"column tp \(int32\) holds 2147483648, which does not fit 32 bits"),
        ({"weights_bytes": 10**5000}, "holds a huge number, which does not fit 64 bits"),
        ({"tp": True}, "is no whole number"),
        ({"tp": 1.0}, "is no whole number"),
        ({"load_s": 10**400}, "column load_s"),
        ({"load_s": "1"}, "is no number"),
        ({"compiled": 1}, "neither true nor false"),
        ({"error": b"bytes"}, "is no text"),
        ({"tested_at": datetime(2026, 1, 1)}, "no time with its zone"),
        ({"tested_at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))}, "column tested_at"),
        ({"output_tokens": [1, 2**31]}, "does not fit 32 bits"),
        ({"output_tokens": "12"}, "no list of numbers"),
        ({"result": "MAYBE"}, "MAYBE"),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_named(values: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fitted(Row(**values))


def test_surrogate_pairs_are_joined_and_lone_ones_replaced() -> None:
    assert clean_text("\ud83d\ude00 \ud83d \ude00 é") == "😀 � � é"


texts = st.text(st.characters(), max_size=60) | st.sampled_from(
    ["\0", "a\0b", "\ud800", "\udfff\ud800", "\u202eabc", "\ufeffx", "é" * 50_000, "\r\n"]
)
bits = {32: st.integers(-(2**31), 2**31 - 1), 64: st.integers(-(2**63), 2**63 - 1)}
VALUES = {
    "string": texts,
    "int32": bits[32],
    "int64": bits[64],
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "timestamp[ms, UTC]": st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    "list<int32>": st.lists(bits[32], max_size=5),
}
ENUMS = {name: st.sampled_from(kind) for name, kind in {"result": Result, "stage": Stage, "reason": Reason, "blame": Blame}.items()}
any_row = st.builds(Row, **{c.name: st.none() | ENUMS.get(c.name, VALUES[c.arrow]) for c in COLUMNS})


@settings(deadline=None, max_examples=60)
@given(any_row)
def test_any_row_survives_json_parquet_and_pandas(row: Row) -> None:
    whole = fitted(row)
    assert fitted(whole) == whole
    read = fitted(Row.from_json(json.loads(json.dumps(whole.to_json(), ensure_ascii=False).encode())))
    assert read == whole
    parquet = to_parquet([read])
    (found,) = pq.read_table(io.BytesIO(parquet)).to_pylist()
    assert Row.from_json(found | {"tested_at": found["tested_at"] and found["tested_at"].isoformat()}) == whole
    frame = pd.read_parquet(io.BytesIO(parquet))
    assert list(frame.columns) == [c.name for c in COLUMNS]
    for name in ("model_id", "error", "run_py"):
        value = frame[name].iloc[0]
        assert (None if pd.isna(value) else value) == getattr(whole, name)


@settings(deadline=None)
@given(st.text(st.characters()))
def test_cleaned_text_is_utf8_and_only_surrogates_change(text: str) -> None:
    clean = clean_text(text)
    assert clean.encode().decode() == clean
    assert clean == text or any("\ud800" <= c <= "\udfff" for c in text)
