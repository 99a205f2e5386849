"""Graphs in a storage bucket of the Hub: our push and pull, and the printed line by the real `hf`, against a stand-in Hub.

The stand-in answers the endpoints that huggingface_hub calls; the bytes go through the real hf-xet.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.child.bucket_hub import TOKEN, Buckets, serving
from tests.pure.graph_cases import OTHER_PLAN, PAIR, PLAN_3, filled, manifest, neff

from doesitrun.graphs import LocalGraphs
from doesitrun.graphs.folder import scan

URL = "hf://buckets/me/graphs/public"
HF = Path(sys.executable).with_name("hf")
pytest.importorskip("hf_xet", reason="SKIPPED: the Hub's buckets need hf-xet")

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Buckets]:
    with serving(tmp_path / "hub") as buckets:
        buckets.files["me/graphs"] = {}
        yield buckets


@pytest.fixture
def call(hub: Buckets, tmp_path: Path) -> Call:
    """A command with the stand-in as its Hub and a token that may write."""

    def run(*argv: object, cwd: Path = tmp_path, **variables: str) -> subprocess.CompletedProcess[str]:
        own = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0", "NO_COLOR": "1"}
        own |= {"HF_HUB_ETAG_TIMEOUT": "60", "HF_HUB_DOWNLOAD_TIMEOUT": "60"}  # machines are shared
        words = [str(word) for word in argv]
        done = subprocess.run(words, cwd=cwd, env={**os.environ, **own, **variables}, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def doesitrun(*arguments: object) -> list[object]:
    return [sys.executable, "-m", "doesitrun", *arguments]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "results"
    local = LocalGraphs(root / "graphs")
    local.keep(manifest(filled(local.cache(PAIR), range(30)), range(30)))
    local.keep(manifest(local.cache(PAIR), range(3), OTHER_PLAN, model="org/other"))
    return root


def test_graphs_go_through_a_bucket_and_the_real_hf_copies_them(hub: Buckets, call: Call, workspace: Path, tmp_path: Path) -> None:
    done = call(*doesitrun("graphs", "push", URL, "-w", workspace, "--json"))
    assert (done.returncode, json.loads(done.stdout)["uploaded"]) == (0, 30), done.stderr
    assert len(hub.added) == 32, "entries and two manifests"
    local = LocalGraphs(workspace / "graphs")
    local.keep(manifest(filled(local.cache(PAIR), range(40)), range(40), PLAN_3))
    done = call(*doesitrun("graphs", "push", URL, "-w", workspace, "--json"))
    assert json.loads(done.stdout)["uploaded"] == 10
    assert len([name for name in hub.added if "/entries/" in name]) == 40, "each entry was uploaded once"

    done = call(*doesitrun("graphs", "pull", URL, "--pair", PAIR, "-w", tmp_path / "other", "--json"))
    assert json.loads(done.stdout)["fetched"] == 40, done.stderr
    there = LocalGraphs(tmp_path / "other" / "graphs").cache(PAIR)
    whole = {name: (local.cache(PAIR) / name).read_bytes() for name in scan(local.cache(PAIR))}
    assert {name: (there / name).read_bytes() for name in scan(there)} == whole

    done = call(*doesitrun("graphs", "command", "org/other", "--store", URL, "--pair", PAIR))
    copy, variable = done.stdout.splitlines()
    assert variable == 'export TORCH_NEURONX_NEFF_CACHE_DIR="$PWD/neff_cache"'
    words = shlex.split(copy)
    assert words[:3] == ["hf", "buckets", "sync"]
    plan = call(HF, *words[1:], "--dry-run", "--quiet")
    operations = [json.loads(line) for line in plan.stdout.splitlines() if '"operation"' in line]
    assert {each["path"] for each in operations if each["action"] == "download"} == {neff(number) for number in range(3)}
    done = call(HF, *words[1:])
    assert done.returncode == 0, done.stderr
    assert {name: (tmp_path / "neff_cache" / name).read_bytes() for name in scan(tmp_path / "neff_cache")} == {
        neff(number): whole[neff(number)] for number in range(3)
    }


def test_a_bucket_that_is_gone_or_closed_or_refuses_is_one_sentence(hub: Buckets, call: Call, workspace: Path) -> None:
    gone = call(*doesitrun("graphs", "push", "hf://buckets/me/nosuch", "-w", workspace))
    assert (gone.returncode, "is not there" in gone.stderr) == (8, True), gone.stderr
    closed = call(*doesitrun("graphs", "push", URL, "-w", workspace), HF_TOKEN="hf_reader")
    assert (closed.returncode, "refuses access" in closed.stderr) == (8, True), closed.stderr
    hub.refuse_batches_after = 1
    cut = call(*doesitrun("graphs", "push", URL, "-w", workspace))
    assert cut.returncode == 8
    assert [name for name in hub.added if "/manifests/" in name] == [], "no manifest without its entries"
    hub.refuse_batches_after = None
    resumed = call(*doesitrun("graphs", "push", URL, "-w", workspace, "--json"))
    assert (json.loads(resumed.stdout)["uploaded"], json.loads(resumed.stdout)["present"]) == (0, 30)
    assert len([name for name in hub.added if "/manifests/" in name]) == 2
