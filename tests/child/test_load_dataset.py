"""The workspace is a dataset that the `datasets` library loads as it stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from doesitrun.outcomes import Reason, Result
from doesitrun.records import COLUMNS, Row
from doesitrun.store.workspace import Workspace

# A process of its own: the library is slow to import, warns, and keeps its cache where the environment says.
LOAD = """
import json, sys
import datasets
names = datasets.get_dataset_config_names(sys.argv[1])
sets = {name: datasets.load_dataset(sys.argv[1], name) for name in names}
default = datasets.load_dataset(sys.argv[1])
print(json.dumps({
    "names": names,
    "rows": {name: {split: rows.num_rows for split, rows in found.items()} for name, found in sets.items()},
    "columns": default["train"].column_names,
    "models": sorted(default["train"]["model_id"]),
}))
"""


def attempt(space: Workspace, target: str, name: str, result: Result, **values: object) -> None:
    stack = {"target": target, "compiler": "inductor", "library": "transformers", "library_version": "5.24.0"}
    row = Row(model_id=f"org/{name}", result=result, tested_at=datetime(2026, 1, 1, tzinfo=UTC), **(stack | values))
    space.new_attempt(f"{name}+{target}", row)


def test_load_dataset_loads_every_config_and_the_default(tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason="the datasets library is not installed")
    space = Workspace(tmp_path / "results: it's #1")
    attempt(space, "cpu", "a", Result.PASS, compiler_version="2.13.0+cpu", output_tokens=[1, 2])
    attempt(space, "cpu", "b", Result.FAIL, compiler_version="2.14/é", reason=Reason.CRASH, error="| --- \0 \ud800 \u202e")
    attempt(space, "cpu", "c", Result.EXCLUDED, compiler=None, library=None, library_version=None, reason=Reason.GATED)
    attempt(space, "neuron", "d", Result.INCONCLUSIVE, compiler="neuronx-cc", compiler_version="2.31")
    space.export()
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache"), "HF_DATASETS_CACHE": str(tmp_path / "cache/datasets")}
    done = subprocess.run([sys.executable, "-c", LOAD, str(space.root)], env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["names"] == ["cpu", "neuron"]
    assert found["rows"] == {"cpu": {"train": 3}, "neuron": {"train": 1}}
    assert found["columns"] == [c.name for c in COLUMNS]
    assert found["models"] == ["org/a", "org/b", "org/c"]
