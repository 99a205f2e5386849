"""The main job on real weights: what the demo prints, keeps and hides."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from doesitrun.outcomes import Reason, Result
from doesitrun.records import Row
from tests.cpu.conftest import SECRET, Command, Ran, rows
from tests.cpu.test_checkpoints import edit_weights


@pytest.fixture
def demo_rows(demo: Ran, workspace: Path) -> tuple[Row, Row]:
    one, three = sorted(
        (row for row in rows(workspace) if (row.plan_id or "").startswith("local--SmolLM2")), key=lambda row: row.cores or 0
    )[:2]
    return one, three


def test_demo_ends_with_two_rows_that_pass(demo: Ran, demo_rows: tuple[Row, Row]) -> None:
    assert demo.code == 0, demo.err
    assert demo.out.count("PASS") == 2
    assert [(row.result, row.cores, row.rungs) for row in demo_rows] == [
        (Result.PASS, 1, "reference,executed,numbers"),
        (Result.PASS, 3, "reference,executed,numbers,fluent"),
    ]
    assert all(row.compiled and row.graphs and 0 < (row.logit_ratio or 0) < 1.5 for row in demo_rows)


def test_demo_shards_the_weights(demo_rows: tuple[Row, Row]) -> None:
    one, three = demo_rows
    assert one.rank_weights_bytes == one.weights_bytes == 269_030_016
    assert three.rank_weights_bytes == pytest.approx(one.weights_bytes / 3, rel=0.01)


def test_demo_names_the_steps_and_the_next_command(demo: Ran) -> None:
    assert "first pass, which compiles" in demo.err
    assert "doesitrun test" in demo.out


@pytest.mark.parametrize("cores", [1, 3])
def test_run_py_runs_alone_and_prints_the_same_tokens(cores: int, demo_rows: tuple[Row, Row], workspace: Path, tmp_path: Path) -> None:
    row = next(row for row in demo_rows if row.cores == cores)
    script = workspace / "attempts" / str(row.plan_id) / "1" / "run.py"
    graphs = next((workspace / "graphs" / "cpu").glob("*/*"))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(graphs)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env, cwd=script.parent, check=True)
    tokens = next(line for line in done.stdout.splitlines() if line.startswith("tokens: "))
    assert tokens.split()[1:] == [str(token) for token in row.output_tokens or []]


def test_pandas_opens_the_dataset(demo_rows: tuple[Row, Row], workspace: Path) -> None:
    (file,) = (workspace / "data").rglob("*.parquet")
    table = pd.read_parquet(file)
    found = table[table.model_id == "local/SmolLM2-135M-Instruct"].sort_values("cores")
    assert list(found.cores) == [1, 3]
    for name in ("run_py", "torch", "transformers", "python", "wall_s", "run_s", "hbm_peak_gb", "output_text"):
        assert found[name].notna().all(), name


def test_secrets_are_nowhere_in_the_workspace(demo: Ran, workspace: Path) -> None:
    told = [path for path in workspace.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert told == []
    assert SECRET not in demo.out + demo.err


def test_damaged_weights_fail_with_their_ratio(demo: Ran, damaged: Path, checkpoint: Path, row_of: Callable[..., tuple[Row, Ran]]) -> None:
    edit_weights(damaged, lambda tensors: tensors["model.layers.12.self_attn.o_proj.weight"].zero_())
    row, ran = row_of(damaged, "--reference", checkpoint, "--cores", 1)
    assert (row.result, row.reason, ran.code) == (Result.FAIL, Reason.WRONG_NUMBERS, 10)
    assert row.logit_ratio is not None
    assert row.logit_ratio > 1.5
    assert f"{row.logit_ratio:.2f}"[:3] in (row.error or "")


def test_a_second_prompt_has_a_plan_id_of_its_own(command: Command, checkpoint: Path) -> None:
    first = json.loads(command("plan", checkpoint, "--json").out)
    assert first["plan_id"].endswith("+c1tp1ep1+bf16+n32")


# ---------------------------------------------------------------------------------- its compiled graphs
def test_published_graphs_are_used_by_a_fresh_workspace_and_by_a_bare_run(
    demo: Ran, command: Command, checkpoint: Path, workspace: Path, tmp_path: Path
) -> None:
    store, fresh = tmp_path / "store", tmp_path / "elsewhere" / "results"
    pushed = command("graphs", "push", store, "--model", checkpoint, "--json")
    assert pushed.code == 0, pushed.err
    (fresh / "x").mkdir(parents=True)
    for kept in ("references", "outlines"):  # what the demo has answered already
        shutil.copytree(workspace / kept, fresh / kept)
    ran = command("test", checkpoint, "--cores", 1, "--graphs", store, "--json", root=fresh)
    row = Row.from_json(json.loads(ran.out))
    assert (row.result, row.graph_misses) == (Result.PASS, 0), ran.err
    assert row.graph_hits == row.graphs == 1
    assert "The only graph came from the cache." in ran.err
    assert (row.graphs_uri or "").startswith(str(store))
    assert "# Compiled graphs for these very versions" in (row.run_py or "")

    line = command("graphs", "command", checkpoint, "--store", store).out.splitlines()
    place = tmp_path / "by-hand"
    place.mkdir()
    (place / "run.py").write_text(row.run_py or "")
    script = "\n".join([*line, f"{sys.executable} run.py --report ."])
    done = subprocess.run(["/bin/sh", "-ec", script], cwd=place, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((place / "result.json").read_text())
    assert (result["graph_hits"], result["graph_misses"], result["tokens"]) == (1, 0, row.output_tokens)
    assert result["graph_entries"][0] == result["graph_entries"][1] > 0


def test_a_sharded_run_counts_the_hits_of_all_ranks(demo: Ran, workspace: Path) -> None:
    three = next(row for row in rows(workspace) if row.cores == 3 and row.result is Result.PASS)
    assert (three.graph_hits or 0) + (three.graph_misses or 0) == 3 * (three.graphs or 0)
