"""NEFFs of the emulated device: compiled in one workspace, pushed, and proved to be used by another one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import doesitrun
from tests.cpu import small_models


def test_neffs_of_one_workspace_are_hits_in_another(environment: dict[str, str], tmp_path: Path) -> None:
    model = small_models.llama(tmp_path / "model")
    store = tmp_path / "store"

    def call(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "doesitrun", *map(str, arguments)]
        path = os.pathsep.join([environment["PYTHONPATH"], str(Path(doesitrun.__file__).parents[1])])
        env = {**environment, "PYTHONPATH": path, **variables}
        return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    def row(*arguments: object, **variables: str) -> dict[str, Any]:
        done = call("test", model, "--target", "neuron", "--json", *arguments, **variables)
        return json.loads(done.stdout) | {"told": done.stderr}

    cold = row("-w", "a")
    assert (cold["graphs"], cold["graph_hits"], cold["graph_misses"]) == (2, 0, 2), cold["told"]
    pushed = call("graphs", "push", store, "-w", "a", "--json")
    assert json.loads(pushed.stdout)["uploaded"] == len(list((tmp_path / "a" / "graphs" / "neuron").rglob("*.neff"))), pushed.stderr

    shutil.copytree(tmp_path / "a" / "references", tmp_path / "b" / "references")  # the CPU's answer is not of interest
    warm = row("-w", "b", "--graphs", store)
    assert (warm["graphs"], warm["graph_hits"], warm["graph_misses"]) == (2, 2, 0), warm["told"]
    assert "All 2 graphs came from the cache." in warm["told"]
    assert warm["graphs_uri"].startswith(str(store))
    assert warm["output_tokens"] == cold["output_tokens"]

    line = call("graphs", "command", model, "--store", store, "--target", "neuron", "-w", "b")
    assert line.stdout.splitlines()[1] == 'export TORCH_NEURONX_NEFF_CACHE_DIR="$PWD/neff_cache"', line.stderr
    (pair,) = store.glob("*/*/*")
    older = Path(str(pair).replace("neuronx-cc-", "neuronx-cc-0."))
    older.parent.parent.mkdir()
    older.parent.mkdir()
    text = "\n".join(path.read_text() for path in pair.glob("manifests/*.json"))
    pair.rename(older)
    (path,) = older.glob("manifests/*.json")
    path.write_text(text.replace("neuronx-cc-", "neuronx-cc-0."))
    refused = call("graphs", "command", model, "--store", store, "--target", "neuron", "-w", "b")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"The nearest pair that has them is {older.relative_to(store)}" in refused.stderr.replace("\n", " ")
