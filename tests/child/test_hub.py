"""The Hub, stood in for by a small HTTP server on loopback: what it says becomes a checkpoint, a refusal or one sentence."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.hub_server import TOKEN, Fault, Hub, html, too_many

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
CONFIG_FILE = json.dumps(CONFIG).encode()
# What a session of `doesitrun` does with the Hub, in a process of its own: its environment is read at import.
CHILD = """
import dataclasses, json, sys
from doesitrun.hub.repository import open_checkpoint
try:
    found = open_checkpoint(*sys.argv[1:])
    print(json.dumps({"kind": type(found).__name__, **dataclasses.asdict(found)}, default=str))
except Exception as error:
    print(json.dumps({"kind": type(error).__name__, "text": str(error), "bases": [c.__name__ for c in type(error).__mro__]}))
"""


def opened(hub: Hub, tmp_path: Path, *arguments: str, endpoint: str | None = None) -> dict[str, Any]:
    """What a child sees of a model, with a token in its environment."""
    environment = {"PATH": os.environ["PATH"], **hub.environment(tmp_path)} | ({"HF_ENDPOINT": endpoint} if endpoint else {})
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=True, cwd=tmp_path
    )
    assert TOKEN not in done.stdout
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def header(tensors: dict[str, Any]) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text


def test_a_model_is_described_without_a_weight_being_downloaded(hub: Hub, tmp_path: Path) -> None:
    counts = {"parameters": {"BF16": 1000, "F32": 10}, "total": 1010}
    files = {"config.json": CONFIG_FILE, "model.safetensors": None}
    repo = hub.add("model", "org/toy", files, safetensors=counts, pipeline_tag="text-generation", gated="auto")
    hub.grants[TOKEN] = {"org/toy"}
    found = opened(hub, tmp_path, "org/toy")
    assert (found["kind"], found["model_id"], found["source"], found["revision"]) == ("Checkpoint", "org/toy", "org/toy", repo.head.sha)
    assert (found["config"], found["pipeline_tag"], found["gated"], found["has_weights"]) == (CONFIG, "text-generation", True, True)
    assert (found["stored"], found["stored_bytes"]) == ({"BF16": 1000, "F32": 10}, 2040)
    assert not [asked for asked in hub.asked if asked.path.endswith(".safetensors")]
    assert {asked.token for asked in hub.asked} == {TOKEN}


def test_headers_are_read_where_the_hub_has_not_counted(hub: Hub, tmp_path: Path) -> None:
    weights = header({"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}) + bytes(8)
    hub.add("model", "org/toy", {"config.json": CONFIG_FILE, "model.safetensors": weights})
    found = opened(hub, tmp_path, "org/toy", "main")
    assert (found["stored"], found["stored_bytes"]) == ({"BF16": 4}, 8)
    assert all(asked.range for asked in hub.asked if asked.path.startswith("/cdn/"))


def test_quantisation_told_beside_the_config_is_found(hub: Hub, tmp_path: Path) -> None:
    side = json.dumps({"producer": {}, "quantization": {"quant_algo": "NVFP4"}}).encode()
    files = {"config.json": CONFIG_FILE, "hf_quant_config.json": side, "model.safetensors": None}
    hub.add("model", "org/toy", files, safetensors={"parameters": {"U8": 1}, "total": 1})
    assert opened(hub, tmp_path, "org/toy")["quantization"] == {"quant_algo": "NVFP4", "quant_method": "modelopt"}


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"config.json": CONFIG_FILE, "pytorch_model.bin": None}, "pickle_weights"),
        ({"config.json": CONFIG_FILE, "toy.gguf": None}, "no_weights"),
        ({"config.json": b"{", "model.safetensors": None}, "invalid_config"),
        ({"model_index.json": None}, "not_transformers"),
        ({"adapter_model.safetensors": None}, "not_transformers"),
    ],
)
def test_a_repository_that_cannot_be_run_is_a_refusal(hub: Hub, tmp_path: Path, files: dict[str, Any], reason: str) -> None:
    repo = hub.add("model", "org/toy", files)
    found = opened(hub, tmp_path, "org/toy")
    assert (found["kind"], found["reason"], found["revision"]) == ("Refusal", reason, repo.head.sha)
    assert "org/toy" in found["detail"] or "config.json" in found["detail"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model_is_a_refusal(hub: Hub, tmp_path: Path, status: int) -> None:
    headers = {"X-Error-Code": "GatedRepo", "X-Error-Message": "ask first"}
    hub.fail(Fault("/api/models/org/gated", times=9, status=status, headers=headers))
    found = opened(hub, tmp_path, "org/gated")
    assert (found["kind"], found["reason"]) == ("Refusal", "gated")
    assert "HF_TOKEN" in found["detail"]


def test_a_gate_that_shuts_only_on_the_files_is_a_refusal_too(hub: Hub, tmp_path: Path) -> None:
    hub.add("model", "org/gated", {"config.json": CONFIG_FILE, "model.safetensors": None}, gated="manual")
    assert opened(hub, tmp_path, "org/gated")["reason"] == "gated"


def test_a_renamed_model_is_found_under_its_old_name(hub: Hub, tmp_path: Path) -> None:
    counts = {"parameters": {"BF16": 4}, "total": 4}
    hub.add("model", "org/new", {"config.json": CONFIG_FILE, "model.safetensors": None}, safetensors=counts)
    hub.moved["model", "org/old"] = "org/new"
    assert opened(hub, tmp_path, "org/old")["stored"] == {"BF16": 4}


def error(status: int, code: str = "", message: str = "") -> Fault:
    headers = {name: value for name, value in (("X-Error-Code", code), ("X-Error-Message", message)) if value}
    return Fault("/api/models/org/toy", times=9, status=status, headers=headers, body=b"{}")


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (error(404, "RepoNotFound"), "ModelNotFoundError", "has no model org/toy"),
        (error(404), "ModelNotFoundError", "or it is private"),
        (error(401), "HubError", "refused access to org/toy (401)"),
        (error(404, "RevisionNotFound"), "ModelNotFoundError", "has no revision"),
        (error(401, message="Invalid credentials in Authorization header"), "HubError", "check that HF_TOKEN is valid"),
        (error(403), "HubError", "refused access to org/toy (403)"),
        (too_many(path="/api/models/org/toy", times=9), "HubThrottledError", "wait five minutes"),
        (error(500), "HubError", "failed while it was asked for org/toy (500)"),
        (error(503), "HubError", "(503)"),
        (html(path="/api/models/org/toy"), "HubError", "could not be reached"),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Fault) else None,
)
def test_a_failure_of_the_hub_is_one_sentence_and_never_a_missing_model(
    hub: Hub, tmp_path: Path, fault: Fault, kind: str, said: str
) -> None:
    hub.fail(fault)
    found = opened(hub, tmp_path, "org/toy")
    assert (found["kind"], said in found["text"]) == (kind, True), found
    assert "DoesItRunError" in found["bases"]
    assert "\n" not in found["text"]
    assert hub.address not in found["text"]


def test_a_hub_that_is_not_there_is_a_hub_error(hub: Hub, tmp_path: Path) -> None:
    found = opened(hub, tmp_path, "org/toy", endpoint="http://127.0.0.1:9")
    assert found["kind"] == "HubError"
    assert "could not be reached" in found["text"]
