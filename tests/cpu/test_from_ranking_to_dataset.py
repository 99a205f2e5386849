"""From what is popular on the Hub to a dataset that others load: rank, select, campaign, publish, on a Hub that is stood in for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub_server import TOKEN, Hub, serve

pytest.importorskip("torch", reason="the stack is not installed")
pytest.importorskip("transformers", reason="the stack is not installed")
pytest.importorskip("datasets", reason="the datasets library is not installed")

from tests.cpu import taught_models

NAME = "me/does-it-run"
RESULTS = {
    "org/dense": ("PASS", None),
    "org/experts": ("PASS", None),
    "org/seeing": ("PASS", None),
    "org/damaged": ("EXCLUDED", "broken_checkpoint"),
    "org/gated": ("EXCLUDED", "gated"),
    "org/packed": ("EXCLUDED", "quantization"),
    "org/coded": ("EXCLUDED", "remote_code"),
    "org/huge": ("EXCLUDED", "too_large"),
    "org/dense-fp8": ("EXCLUDED", "duplicate"),
    "org/unwanted": ("EXCLUDED", "not_prioritized"),
}
LOAD = """
import json, sys
import datasets, pandas
rows = datasets.load_dataset(sys.argv[1], "cpu", split="train")
plans = datasets.load_dataset(sys.argv[1], "plans", split="train")
frame = pandas.read_parquet(f"hf://datasets/{sys.argv[1]}/{sys.argv[2]}")
print(json.dumps({"datasets": {row["model_id"]: [row["result"], row["reason"]] for row in rows},
    "pandas": dict(zip(frame["model_id"], frame["result"])),
    "words": dict(zip(frame["model_id"], frame["exclusion"])),
    "plans": sorted(set(plans["model_id"]))}))
"""


def changed(source: Path, folder: Path, **values: Any) -> Path:
    """A copy of a checkpoint with another config."""
    shutil.copytree(source, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | values))
    return folder


@pytest.fixture(scope="module")
def popular(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A Hub whose most popular models are of every kind."""
    made = tmp_path_factory.mktemp("made")
    dense = taught_models.dense(made / "dense")
    packed = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    huge = {"num_hidden_layers": 400, "hidden_size": 16384, "intermediate_size": 65536, "head_dim": 4096}
    fp8 = {"quantization_config": {"quant_method": "fp8"}}
    with serve() as hub:
        hub.add_folder("org/dense", dense, downloads=90, trendingScore=9)
        hub.add_folder("org/experts", taught_models.experts(made / "experts"), downloads=80)
        hub.add_folder("org/seeing", taught_models.seeing(made / "seeing"), downloads=70, pipeline_tag="image-text-to-text")
        hub.add_folder("org/gated", dense, downloads=60, gated="manual")
        hub.add_folder("org/packed", changed(dense, made / "packed", quantization_config=packed), downloads=50)
        coded = changed(dense, made / "coded", model_type="own", auto_map={"AutoModelForCausalLM": "own.Model"})
        hub.add_folder("org/coded", coded, downloads=40)
        damaged = changed(dense, made / "damaged")
        weights = (damaged / "model.safetensors").read_bytes()
        (damaged / "model.safetensors").write_bytes(weights[: len(weights) // 2])
        hub.add_folder("org/damaged", damaged, downloads=30, trendingScore=8)
        hub.add_folder("org/huge", changed(dense, made / "huge", **huge), downloads=20)
        tags = ["base_model:org/dense", "base_model:quantized:org/dense"]
        hub.add_folder("org/dense-fp8", changed(dense, made / "fp8", **fp8), downloads=10, tags=tags)
        hub.add_folder("org/unwanted", dense, downloads=5)
        yield hub


Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(popular: Hub, tmp_path: Path) -> Run:
    """A command as a user with a token would call it; returns its lines of JSON."""
    environment = os.environ | popular.environment(tmp_path / "hf")

    def call(*arguments: str) -> list[dict[str, Any]]:
        argv = [sys.executable, "-m", "doesitrun", *arguments, "--json"]
        done = subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        assert TOKEN not in done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return call


def test_what_is_popular_becomes_a_dataset_that_others_load(popular: Hub, run: Run, tmp_path: Path) -> None:
    (tmp_path / "selection.toml").write_text('[[skip]]\nmodel = "org/unwanted"\nreason = "Not now."\nlink = "https://example.org/1"\n')
    ranked = run("rank", "--target", "cpu", "--top", "20")
    assert {line["model_id"] for line in ranked} == RESULTS.keys()
    selected = run("select", "--count", "5")
    assert {line["model_id"] for line in selected} == RESULTS.keys()
    assert {line["model_id"] for line in selected if line["chosen"]} == {"org/dense", "org/experts", "org/seeing", "org/damaged"}

    run("campaign", "--selected", "5", "--cores", "2", "--new-tokens", "8")
    published = run("publish", NAME, "--create")[0]
    (data,) = [change for change in published["changes"] if change["path"].startswith("data/")]
    assert (data["rows_here"], data["added"]) == (len(RESULTS), len(RESULTS))
    assert len(popular.repos["dataset", NAME].commits) == 2, "all in one commit, after the one that made it"

    argv = [sys.executable, "-c", LOAD, NAME, data["path"]]
    others = os.environ | popular.environment(tmp_path / "others", token=None)
    loaded = json.loads(subprocess.run(argv, env=others, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    assert {name: tuple(row) for name, row in loaded["datasets"].items()} == RESULTS
    assert loaded["pandas"] == {name: result for name, (result, _) in RESULTS.items()}
    assert loaded["plans"] == sorted(RESULTS)
    assert loaded["words"]["org/unwanted"] == "Not now."
    assert loaded["words"]["org/dense-fp8"] == "A quantisation of org/dense, which is chosen."
