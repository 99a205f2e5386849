"""A stand-in for the Hub's storage buckets: the endpoints that huggingface_hub 2 uses for them.

The bytes take the real way: hf-xet cuts, hashes and compresses them, and rebuilds files from what it stored. Only its
content store is a folder (`local://`, which hf-xet itself offers) instead of the network service.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_standin"


@dataclass
class Buckets:
    """What is stored, and what was asked."""

    content: Path
    files: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """bucket -> path -> its entry in a listing."""
    asked: Counter[str] = field(default_factory=Counter)
    added: list[str] = field(default_factory=list)
    refuse_batches_after: int | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""


class _Handler(BaseHTTPRequestHandler):
    buckets: Buckets
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: Any = None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _parts(self) -> list[str]:
        return [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]

    def _bucket(self, parts: list[str]) -> dict[str, dict[str, Any]] | None:
        found = self.buckets.files.get("/".join(parts))
        if found is None:
            self._answer(404, {"error": "Bucket not found"}, X_Error_Code="RepoNotFound")
        return found

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self) -> None:
        match self._parts():
            case ["api", "buckets", space, name, "xet-read-token" | "xet-write-token" as kind]:
                if kind == "xet-write-token" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    return self._answer(403, {"error": "You have no write access to this bucket"})
                self._token()
            case ["api", "buckets", space, name, "tree", *prefix]:
                self.buckets.asked["tree"] += 1
                found = self._bucket([space, name])
                if found is not None:
                    start = "/".join(prefix)
                    self._answer(200, [each for path, each in sorted(found.items()) if path.startswith(start)])
            case _:
                self._answer(404, {"error": "no such route"})
        return None

    def _token(self) -> None:
        exp = int(time.time()) + 3600
        cas = f"local://{self.buckets.content}"
        body = {"accessToken": "t", "exp": exp, "casUrl": cas}
        self._answer(200, body, X_Xet_Cas_Url=cas, X_Xet_Access_Token="t", X_Xet_Token_Expiration=str(exp))

    def do_HEAD(self) -> None:
        match self._parts():
            case ["buckets", space, name, "resolve", *path]:
                found = self._bucket([space, name])
                each = (found or {}).get("/".join(path))
                if found is None:
                    return
                if each is None:
                    self._answer(404, X_Error_Code="EntryNotFound")
                    return
                route = f"{self.buckets.url}/api/buckets/{space}/{name}/xet-read-token"
                self._answer(200, X_Xet_Hash=each["xetHash"], X_Xet_Refresh_Route=route, X_Linked_Size=str(each["size"]))
            case _:
                self._answer(404)

    def do_POST(self) -> None:
        body = self._body()
        match self._parts():
            case ["api", "buckets", space, name]:
                self.buckets.files.setdefault(f"{space}/{name}", {})
                self._answer(200, {"url": f"{self.buckets.url}/buckets/{space}/{name}"})
            case ["api", "buckets", space, name, "paths-info"]:
                found = self._bucket([space, name])
                if found is not None:
                    self._answer(200, [found[path] for path in json.loads(body)["paths"] if path in found])
            case ["api", "buckets", space, name, "batch"]:
                self._batch([space, name], body)
            case _:
                self._answer(404, {"error": "no such route"})

    def _batch(self, bucket: list[str], body: bytes) -> None:
        found = self._bucket(bucket)
        if found is None:
            return
        with self.buckets.lock:
            self.buckets.asked["batch"] += 1
            limit = self.buckets.refuse_batches_after
            if limit is not None and self.buckets.asked["batch"] > limit:
                self._answer(400, {"error": "the stand-in was told to refuse"})
                return
            for line in body.splitlines():
                self._apply(found, json.loads(line))
        self._answer(200, {"failed": []})

    def _apply(self, found: dict[str, dict[str, Any]], operation: dict[str, Any]) -> None:
        path = operation["path"]
        if operation["type"] == "deleteFile":
            found.pop(path, None)
            return
        at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(operation["mtime"] / 1000))
        size = _size(self.buckets.content, operation["xetHash"])
        found[path] = {"type": "file", "path": path, "size": size, "xetHash": operation["xetHash"], "mtime": at, "uploadedAt": at}
        self.buckets.added.append(path)


# ---------------------------------------------------------------------------------- sizes, which a batch does not tell
_RECORD = 48
"""Bytes of every record of a shard, hf-xet's index of files: a file's header and each of its segments."""


def _size(content: Path, xet_hash: str) -> int:
    """Bytes of a file, as the real service knows them: the sum of its segments in the shard that was uploaded with it."""
    key = b"".join(bytes.fromhex(xet_hash[start : start + 16])[::-1] for start in range(0, 64, 16))
    for shard in content.rglob("shards/*.mdb"):
        data = shard.read_bytes()
        for start in range(_RECORD, len(data) - _RECORD, _RECORD):
            if data[start : start + 32] == key:
                (segments,) = struct.unpack_from("<I", data, start + 36)
                places = range(start + _RECORD, start + _RECORD * (segments + 1), _RECORD)
                return sum(struct.unpack_from("<I", data, place + 36)[0] for place in places)
    message = f"no shard has the file {xet_hash}"
    raise LookupError(message)


@contextmanager
def serving(folder: Path) -> Iterator[Buckets]:
    """The stand-in, on loopback, while it is needed."""
    buckets = Buckets(folder / "content")
    buckets.content.mkdir(parents=True)
    handler = type("Handler", (_Handler,), {"buckets": buckets})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    buckets.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield buckets
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
