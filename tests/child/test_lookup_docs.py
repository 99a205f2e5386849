"""What docs/lookup.md and the card show about one model works as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from tests.conftest import REPOSITORY
from tests.pure.published import OLD, publish, row

import doesitrun
from doesitrun.outcomes import Result
from doesitrun.store.card import card
from doesitrun.store.workspace import parquet_name

MODEL = "Qwen/Qwen3-0.6B"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    publish(tmp_path, [row(MODEL, wall_s=61), row(MODEL, Result.FAIL, OLD), row("other/model")])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def texts() -> dict[str, str]:
    rows = [row(MODEL)]
    return {"docs": (REPOSITORY / "docs/lookup.md").read_text(encoding="utf-8"), "card": card({parquet_name(rows[0]): rows})}


@pytest.mark.parametrize("where", ["docs", "card"])
def test_the_sql_finds_the_model(folder: Path, where: str) -> None:
    (sql,) = blocks(texts()[where], "sql")
    assert sorted(found[0] for found in duckdb.sql(sql).fetchall()) == ["FAIL", "PASS"]


@pytest.mark.parametrize(("where", "expected"), [("docs", ["FAIL", "PASS"]), ("card", ["PASS"])])
def test_the_pandas_finds_the_model(folder: Path, where: str, expected: list[str]) -> None:
    (code,) = [block for block in blocks(texts()[where], "python") if "pandas" in block]
    *before, last = code.strip().splitlines()
    names: dict[str, object] = {}
    exec("\n".join(before), names)
    frame = eval(last, names)
    assert isinstance(frame, pd.DataFrame)
    assert sorted(frame["result"]) == expected


def test_the_python_finds_the_model(folder: Path) -> None:
    (code,) = [block for block in blocks(texts()["card"], "python") if "import doesitrun" in block]
    names: dict[str, object] = {}
    exec(code, names)
    assert isinstance(names["rows"], pd.DataFrame)
    assert list(doesitrun.lookup("qwen3", data=folder)["result"]) == ["PASS"]
