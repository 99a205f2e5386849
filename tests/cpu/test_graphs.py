"""The real model's graphs, published by one workspace and used by another one at another place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from doesitrun.outcomes import Result
from doesitrun.records import Row
from tests.cpu.conftest import Command, Ran, rows


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
