"""The Hub, stood in for by a small HTTP server on loopback: what it says becomes a checkpoint, a refusal or one sentence."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

SHA = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_verysecret"
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
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


@dataclass
class Reply:
    """One answer of the server."""

    status: int = 200
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0


class Hub:
    """The stand-in: paths and their replies, and what was asked."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.asked: list[tuple[str, str, str]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def reply(self, *, body: bool) -> None:
                path = self.path.partition("?")[0]
                hub.asked.append((self.command, path, self.headers.get("Authorization", "")))
                reply = hub.replies.get(path, Reply(404, b"{}", {"X-Error-Code": "EntryNotFound"}))
                time.sleep(reply.wait_s)
                data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                wanted = self.headers.get("Range", "")
                status = reply.status
                if wanted and status == 200:
                    first, last = wanted.removeprefix("bytes=").split("-")
                    data, status = data[int(first) : int(last) + 1], 206
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if body:
                    self.wfile.write(data)

            def do_GET(self) -> None:
                self.reply(body=True)

            def do_HEAD(self) -> None:
                self.reply(body=False)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def model(self, model_id: str, files: dict[str, Any], **info: Any) -> None:
        """A repository with these files; a file whose value is None is only listed."""
        siblings = [{"rfilename": name} for name in files]
        body = {"id": model_id, "modelId": model_id, "sha": SHA, "siblings": siblings, "gated": False, "tags": [], **info}
        for revision in ("", "/revision/main", f"/revision/{SHA}"):
            self.replies[f"/api/models/{model_id}{revision}"] = Reply(body=body, headers={"Content-Type": "application/json"})
        for name, content in files.items():
            if content is not None:
                headers = {"ETag": f'"{name}"', "X-Repo-Commit": SHA}
                self.replies[f"/{model_id}/resolve/{SHA}/{name}"] = Reply(body=content, headers=headers)


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    hub.thread.join()


def opened(hub: Hub, tmp_path: Path, *arguments: str, endpoint: str | None = None) -> dict[str, Any]:
    """What a child sees of a model, with a token in its environment."""
    environment = {
        "PATH": os.environ["PATH"],
        "HF_ENDPOINT": endpoint or hub.address,
        "HF_HOME": str(tmp_path),
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
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
    files = {"config.json": CONFIG, "model.safetensors": None}
    hub.model("org/toy", files, safetensors=counts, pipeline_tag="text-generation", gated="auto")
    found = opened(hub, tmp_path, "org/toy")
    assert (found["kind"], found["model_id"], found["source"], found["revision"]) == ("Checkpoint", "org/toy", "org/toy", SHA)
    assert (found["config"], found["pipeline_tag"], found["gated"], found["has_weights"]) == (CONFIG, "text-generation", True, True)
    assert (found["stored"], found["stored_bytes"]) == ({"BF16": 1000, "F32": 10}, 2040)
    assert not [path for _, path, _ in hub.asked if path.endswith(".safetensors")]
    assert {authorization for _, _, authorization in hub.asked} == {f"Bearer {TOKEN}"}


def test_headers_are_read_where_the_hub_has_not_counted(hub: Hub, tmp_path: Path) -> None:
    weights = header({"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}) + bytes(8)
    hub.model("org/toy", {"config.json": CONFIG, "model.safetensors": weights})
    found = opened(hub, tmp_path, "org/toy", "main")
    assert (found["stored"], found["stored_bytes"]) == ({"BF16": 4}, 8)


def test_quantisation_told_beside_the_config_is_found(hub: Hub, tmp_path: Path) -> None:
    side = {"producer": {}, "quantization": {"quant_algo": "NVFP4"}}
    hub.model(
        "org/toy",
        {"config.json": CONFIG, "hf_quant_config.json": side, "model.safetensors": None},
        safetensors={"parameters": {"U8": 1}, "total": 1},
    )
    assert opened(hub, tmp_path, "org/toy")["quantization"] == {"quant_algo": "NVFP4", "quant_method": "modelopt"}


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"config.json": CONFIG, "pytorch_model.bin": None}, "pickle_weights"),
        ({"config.json": CONFIG, "toy.gguf": None}, "no_weights"),
        ({"config.json": b"{", "model.safetensors": None}, "invalid_config"),
        ({"model_index.json": None}, "not_transformers"),
        ({"adapter_model.safetensors": None}, "not_transformers"),
    ],
)
def test_a_repository_that_cannot_be_run_is_a_refusal(hub: Hub, tmp_path: Path, files: dict[str, Any], reason: str) -> None:
    hub.model("org/toy", files)
    found = opened(hub, tmp_path, "org/toy")
    assert (found["kind"], found["reason"], found["revision"]) == ("Refusal", reason, SHA)
    assert "org/toy" in found["detail"] or "config.json" in found["detail"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model_is_a_refusal(hub: Hub, tmp_path: Path, status: int) -> None:
    hub.replies["/api/models/org/gated"] = Reply(status, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "ask first"})
    found = opened(hub, tmp_path, "org/gated")
    assert (found["kind"], found["reason"]) == ("Refusal", "gated")
    assert "HF_TOKEN" in found["detail"]


def test_a_gate_that_shuts_only_on_the_files_is_a_refusal_too(hub: Hub, tmp_path: Path) -> None:
    hub.model("org/gated", {"config.json": CONFIG, "model.safetensors": None}, gated="manual")
    hub.replies[f"/org/gated/resolve/{SHA}/config.json"] = Reply(403, b"", {"X-Error-Code": "GatedRepo"})
    assert opened(hub, tmp_path, "org/gated")["reason"] == "gated"


@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (Reply(404, b"{}", {"X-Error-Code": "RepoNotFound"}), "ModelNotFoundError", "has no model org/toy"),
        (Reply(404, b"{}"), "ModelNotFoundError", "or it is private"),
        (Reply(401, b"{}"), "HubError", "refused access to org/toy (401)"),
        (Reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"}), "ModelNotFoundError", "has no revision"),
        (Reply(401, b"{}", {"X-Error-Message": "Invalid credentials in Authorization header"}), "HubError", "check that HF_TOKEN is valid"),
        (Reply(403, b"{}"), "HubError", "refused access to org/toy (403)"),
        (Reply(429, b"{}"), "HubThrottledError", "wait five minutes"),
        (Reply(500, b"{}"), "HubError", "failed while it was asked for org/toy (500)"),
        (Reply(503, b"{}"), "HubError", "(503)"),
        (Reply(200, b"not json"), "HubError", "could not be reached"),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Reply) else None,
)
def test_a_failure_of_the_hub_is_one_sentence_and_never_a_missing_model(
    hub: Hub, tmp_path: Path, reply: Reply, error: str, said: str
) -> None:
    hub.replies["/api/models/org/toy"] = reply
    found = opened(hub, tmp_path, "org/toy")
    assert (found["kind"], said in found["text"]) == (error, True), found
    assert "DoesItRunError" in found["bases"]
    assert "\n" not in found["text"]
    assert hub.address not in found["text"]


def test_a_hub_that_is_not_there_is_a_hub_error(hub: Hub, tmp_path: Path) -> None:
    found = opened(hub, tmp_path, "org/toy", endpoint="http://127.0.0.1:9")
    assert found["kind"] == "HubError"
    assert "could not be reached" in found["text"]
