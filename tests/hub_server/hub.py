"""The stand-in Hub as tests see it: repositories go in, faults are ordered, and what was asked can be looked up."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.hub_server.faults import Fault, Quota
from tests.hub_server.repos import Content, File, Repo, counted
from tests.hub_server.wire import Handler

OWNER = "me"
TOKEN = "hf_verysecrettokenofthestandin"


@dataclass(frozen=True)
class Asked:
    """One request that came in."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    token: str
    range: str


@dataclass
class Hub:
    """A Hub on loopback. `TOKEN` belongs to the user `me`, who may write there and has accepted no licence yet."""

    address: str = ""
    cdn: str = ""
    """The host that large files lie on: the same server by another name, so that clients take it for another."""
    page: int = 1000
    repos: dict[tuple[str, str], Repo] = field(default_factory=dict)
    moved: dict[tuple[str, str], str] = field(default_factory=dict)
    blobs: dict[str, Content] = field(default_factory=dict)
    tokens: dict[str, set[str]] = field(default_factory=lambda: {TOKEN: {OWNER}})
    """Token -> the names under which its owner may read and write everything."""
    grants: dict[str, set[str]] = field(default_factory=dict)
    """Token -> gated repositories whose licence its owner has accepted."""
    faults: list[Fault] = field(default_factory=list)
    quota: Quota | None = None
    asked: list[Asked] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    """Addresses on the other host to which a token was sent."""
    broken: list[str] = field(default_factory=list)
    """Errors of the server itself."""

    def add(self, kind: str, name: str, files: Mapping[str, Content], **info: Any) -> Repo:
        """A repository (`model` or `dataset`) with these files. `gated` and `private` are its own; the rest is what the API says."""
        own = {key: info.pop(key) for key in ("gated", "private") if key in info}
        repo = Repo(kind, name, info, **own)
        repo.commit({path: File.of(path, content) for path, content in files.items()})
        self.repos[kind, name] = repo
        return repo

    def add_folder(self, name: str, folder: Path, **info: Any) -> Repo:
        """A model repository with a folder's files, which stay where they are."""
        files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
        return self.add("model", name, files, **{"pipeline_tag": "text-generation", **counted(folder), **info})

    def fail(self, fault: Fault) -> Fault:
        self.faults.append(fault)
        return fault

    def noted(self, request: Handler) -> Fault | None:
        """Writes the request down, and says how it is to fail."""
        known = Asked(request.command, request.url, request.query, request.token, request.headers.get("Range", ""))
        self.asked.append(known)
        return next((fault for fault in self.faults if fault.takes(known.method, known.path)), None)

    def environment(self, home: Path, token: str | None = TOKEN) -> dict[str, str]:
        """What a process needs to take this for the Hub; `home` is where it keeps its downloads."""
        known = {"HF_ENDPOINT": self.address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        known |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "0"}
        return known | ({"HF_TOKEN": token} if token else {})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    hub: Hub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours; anything else is told at the end."""
        import sys
        import traceback

        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            self.hub.broken.append(traceback.format_exc())


@contextmanager
def serve() -> Iterator[Hub]:
    """A running, empty Hub. Raises AssertionError at the end if the server itself failed, or a token went to the other host."""
    hub = Hub()
    server = _Server(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"hub": hub}))
    server.hub = hub
    hub.address, hub.cdn = f"http://127.0.0.1:{server.server_port}", f"http://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert hub.broken == []
    assert hub.leaks == []
