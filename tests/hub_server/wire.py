"""The stand-in Hub on the wire: HTTP/1.1 on loopback, with the answers, headers and error codes of the real one."""

from __future__ import annotations

import base64
import json
import re
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.hub_server.faults import Fault
from tests.hub_server.repos import Commit, File, Repo, data_of, is_lfs

if TYPE_CHECKING:
    from tests.hub_server.hub import Hub

PAGE = 1000
ALWAYS = ("_id", "id", "modelId", "private", "gated", "createdAt")
SORTS = {
    "trendingScore": "trendingScore",
    "downloads": "downloads",
    "likes": "likes",
    "createdAt": "createdAt",
    "lastModified": "lastModified",
}


class RefusedError(Exception):
    """The answer is known, and it is not a good one."""

    def __init__(self, status: int, code: str = "", message: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {**({"X-Error-Code": code} if code else {}), **({"X-Error-Message": message} if message else {}), **(headers or {})}
        self.body = {"error": message or code or str(status)}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._handle()

    def do_HEAD(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    # ------------------------------------------------------------------------------ the frame
    def _handle(self) -> None:
        parts = urlsplit(self.path)
        self.url, self.query = unquote(parts.path), parse_qs(parts.query, keep_blank_values=True)
        self.raw_url = parts.path
        self.token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.payload = self._read()
        self.fault = self.hub.noted(self)
        if self.fault and self.fault.wait_s:
            time.sleep(self.fault.wait_s)
        try:
            self._quota()
            if self.fault and self.fault.status:
                self._send(self.fault.status, self.fault.body or b"", self.fault.headers)
                return
            self._route()
        except RefusedError as stop:
            self._json(stop.body, stop.status, stop.headers)

    def _quota(self) -> None:
        quota = self.hub.quota
        if quota is not None and (refusal := quota.refusal()):
            raise RefusedError(429, message="We had to rate limit you", headers=refusal)

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        whole = b""
        while length := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def _route(self) -> None:
        for method, pattern, answer in ROUTES:
            found = re.fullmatch(pattern, self.url)
            if found and self.command in method:
                answer(self, **found.groupdict())
                return
        raise RefusedError(404, message=f"no such page here: {self.command} {self.url}")

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        fault = self.fault or Fault()
        if fault.add_to_length:
            body = body + bytes(fault.add_to_length) if fault.add_to_length > 0 else body[: fault.add_to_length]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault.cut_after is not None and len(body) > fault.cut_after:
            self.wfile.write(body[: fault.cut_after])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(body)

    # ------------------------------------------------------------------------------ who may see what
    def _repo(self, kind: str, name: str) -> Repo:
        """The repository, if the one who asks may know of it."""
        if self.token and self.token not in self.hub.tokens:
            raise RefusedError(401, message="Invalid credentials in Authorization header")
        kind = kind.removesuffix("s")
        new = self.hub.moved.get((kind, name))
        if new:
            raise RefusedError(307, headers={"Location": self.path.replace(quote(name, safe="/"), new, 1)})
        repo = self.hub.repos.get((kind, name))
        if repo is None or (repo.private and not self._owns(name)):
            raise RefusedError(
                404 if self.token else 401, "RepoNotFound", "Repository not found" if self.token else "Invalid username or password."
            )
        return repo

    def _owns(self, name: str) -> bool:
        return name.partition("/")[0] in self.hub.tokens.get(self.token, ())

    def _readable(self, repo: Repo) -> Repo:
        if repo.gated and not (self._owns(repo.id) or repo.id in self.hub.grants.get(self.token, ())):
            raise RefusedError(403 if self.token else 401, "GatedRepo", f"Access to model {repo.id} is restricted.")
        return repo

    def _writable(self, repo: Repo) -> Repo:
        if not self._owns(repo.id):
            raise RefusedError(403 if self.token else 401, message="You don't have the rights to write to it")
        return repo

    def _commit(self, repo: Repo, revision: str | None) -> Commit:
        commit = repo.at(unquote(revision or "main"))
        if commit is None:
            raise RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    # ------------------------------------------------------------------------------ listings and facts
    def listing(self) -> None:
        """GET /api/models: filtered, sorted, in pages."""
        found = [
            repo.described(repo.head)
            for repo in self.hub.repos.values()
            if repo.kind == "model" and (not repo.private or self._owns(repo.id))
        ]
        asked = {name: values[-1] for name, values in self.query.items()}
        if "pipeline_tag" in asked:
            found = [each for each in found if each.get("pipeline_tag") == asked["pipeline_tag"]]
        wanted = [tag for value in self.query.get("filter", ()) for tag in value.split(",")]
        found = [each for each in found if all(tag in each["tags"] or tag == each.get("library_name") for tag in wanted)]
        if "search" in asked:
            found = [each for each in found if asked["search"].lower() in each["id"].lower()]
        key = SORTS.get(asked.get("sort", ""), "trendingScore")
        found.sort(key=lambda each: each["id"])
        found.sort(key=lambda each: each.get(key) or 0, reverse=True)
        start, size = int(asked.get("cursor", 0)), min(int(asked.get("limit", PAGE)), self.hub.page)
        page = found[start : start + size]
        expand = self.query.get("expand")
        if expand:
            page = [{name: each[name] for name in (*ALWAYS, *expand) if name in each} for each in page]
        headers = {}
        if start + size < len(found) or (self.fault and self.fault.loop):
            following = start if self.fault and self.fault.loop else start + size
            rest = "&".join(f"{name}={quote(value)}" for name, values in self.query.items() if name != "cursor" for value in values)
            headers["Link"] = f'<{self.hub.address}/api/models?{rest}&cursor={following}>; rel="next"'
        self._json(page, headers=headers)

    def facts(self, kind: str, name: str, revision: str | None = None) -> None:
        """GET /api/models/ID and its like for datasets."""
        repo = self._repo(kind, name)
        known = repo.described(self._commit(repo, revision))
        expand = self.query.get("expand")
        if expand:
            known = {key: known[key] for key in (*ALWAYS, "sha", *expand) if key in known}
        self._json(known)

    def whoami(self) -> None:
        if self.token not in self.hub.tokens:
            raise RefusedError(401, message="Invalid credentials in Authorization header")
        names = sorted(self.hub.tokens[self.token])
        self._json({"type": "user", "name": names[0], "orgs": [{"name": name} for name in names[1:]], "auth": {}})

    def may_read(self, kind: str, name: str) -> None:
        """GET .../auth-check."""
        self._readable(self._repo(kind, name))
        self._json({})

    def refs(self, kind: str, name: str) -> None:
        repo = self._repo(kind, name)
        self._json({"branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": repo.head.sha}], "tags": [], "converts": []})

    def commits(self, kind: str, name: str, revision: str) -> None:
        repo = self._repo(kind, name)
        self._commit(repo, revision)
        self._json(
            [{"id": c.sha, "title": c.title, "message": "", "authors": [], "date": c.at.isoformat()} for c in reversed(repo.commits)]
        )

    # ------------------------------------------------------------------------------ files
    def tree(self, kind: str, name: str, revision: str, path: str = "") -> None:
        """GET .../tree/REVISION/PATH: files and folders, in pages."""
        repo = self._repo(kind, name)
        commit = self._commit(repo, revision)
        below = f"{path}/" if path else ""
        inside = {file: commit.files[file] for file in sorted(commit.files) if file.startswith(below)}
        if path and not inside:
            raise RefusedError(404, "EntryNotFound", f"{path} does not exist on {revision!r}")
        deep = self.query.get("recursive", ["false"])[0].lower() in ("true", "1")
        entries: dict[str, dict[str, Any]] = {}
        for file in inside:
            steps = file[len(below) :].split("/")
            for depth in range(1, len(steps) if deep else min(len(steps), 2)):
                folder = below + "/".join(steps[:depth])
                entries.setdefault(folder, {"type": "directory", "oid": commit.sha, "size": 0, "path": folder})
            if deep or len(steps) == 1:
                entries[file] = self._entry(commit, file)
        start = int(self.query.get("cursor", ["0"])[0])
        listed = list(entries.values())
        headers = {}
        if start + self.hub.page < len(listed):
            address = f"{self.hub.address}{self.raw_url}?recursive={deep}&expand={self._expands()}&cursor={start + self.hub.page}"
            headers["Link"] = f'<{address}>; rel="next"'
        self._json(listed[start : start + self.hub.page], headers=headers)

    def paths_info(self, kind: str, name: str, revision: str) -> None:
        """POST .../paths-info/REVISION: those paths that are there."""
        commit = self._commit(self._repo(kind, name), revision)
        asked = json.loads(self.payload) if self.payload[:1] == b"{" else parse_qs(self.payload.decode())
        self.query["expand"] = asked.get("expand", ["false"])
        found = [self._entry(commit, path) for path in asked["paths"] if path in commit.files]
        folders = [path for path in asked["paths"] if path not in commit.files and any(f.startswith(f"{path}/") for f in commit.files)]
        self._json([*found, *({"type": "directory", "oid": commit.sha, "size": 0, "path": path} for path in folders)])

    def _expands(self) -> bool:
        values = self.query.get("expand", ["false"])
        return str(values[0] if isinstance(values, list) else values).lower() in ("true", "1")

    def _entry(self, commit: Commit, path: str) -> dict[str, Any]:
        file = commit.files[path]
        entry: dict[str, Any] = {"type": "file", "oid": file.oid, "size": file.size, "path": path}
        if is_lfs(path):
            entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
        if self._expands():
            entry["lastCommit"] = {"id": commit.sha, "title": commit.title, "date": commit.at.isoformat()}
        return entry

    def resolve(self, name: str, revision: str, path: str, kind: str = "models/") -> None:
        """HEAD or GET .../resolve/REVISION/PATH: small files are sent, large ones lie on another host."""
        repo = self._readable(self._repo(kind.rstrip("/"), name))
        commit = self._commit(repo, revision)
        file = commit.files.get(path)
        headers = {"X-Repo-Commit": commit.sha, "Accept-Ranges": "bytes"}
        if file is None or file.content is None:
            raise RefusedError(404, "EntryNotFound", f"{path} does not exist", headers)
        if is_lfs(path):
            self.hub.blobs[file.sha256] = file.content
            headers |= {"X-Linked-Size": str(file.size), "X-Linked-Etag": f'"{file.sha256}"'}
            self._send(302, b"", headers | {"Location": f"{self.hub.cdn}/cdn/{file.sha256}", "ETag": f'"{file.oid}"'})
            return
        self._bytes(data_of(file.content), headers | {"ETag": f'"{file.oid}"'})

    def cdn(self, oid: str) -> None:
        """The other host, which must never be shown the token."""
        if self.token:
            self.hub.leaks.append(self.url)
        content = self.hub.blobs.get(oid)
        if content is None:
            raise RefusedError(404)
        self._bytes(data_of(content), {"ETag": f'"{oid}"', "Accept-Ranges": "bytes"})

    def _bytes(self, data: bytes, headers: dict[str, str]) -> None:
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        headers = {"Content-Type": "application/octet-stream", **headers}
        if not found or found.groups() == ("", ""):
            self._send(200, data, headers)
            return
        first, last = found.groups()
        start = int(first) if first else max(0, len(data) - int(last))
        end = min(int(last), len(data) - 1) if first and last else len(data) - 1
        if start >= len(data) or start > end:
            self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            return
        self._send(206, data[start : end + 1], headers | {"Content-Range": f"bytes {start}-{end}/{len(data)}"})

    # ------------------------------------------------------------------------------ writing
    def create(self) -> None:
        """POST /api/repos/create."""
        asked = json.loads(self.payload)
        if self.token not in self.hub.tokens:
            raise RefusedError(401, message="Invalid credentials in Authorization header")
        owner = asked.get("organization") or min(self.hub.tokens[self.token])
        name, kind = f"{owner}/{asked['name']}", asked.get("type") or "model"
        if not self._owns(name):
            raise RefusedError(403, message=f'You don\'t have the rights to create a {kind} under the namespace "{owner}"')
        url = f"{self.hub.address}/{'' if kind == 'model' else f'{kind}s/'}{name}"
        if (kind, name) in self.hub.repos:
            self._json({"error": f"You already created this {kind} repo", "url": url}, 409)
            return
        repo = self.hub.add(kind, name, {".gitattributes": b"*.parquet filter=lfs\n"})
        repo.private = asked.get("visibility") == "private"
        self._json({"url": url, "name": name, "id": name})

    def validate(self) -> None:
        """POST /api/validate-yaml: the card's front matter."""
        content = json.loads(self.payload)["content"]
        if not re.match(r"---\n.*?\n---\n", content, re.DOTALL):
            self._json({"errors": [], "warnings": [{"message": "empty or missing yaml metadata in repo card"}]})
            return
        self._json({"errors": [], "warnings": []})

    def preupload(self, kind: str, name: str, revision: str) -> None:
        repo = self._writable(self._repo(kind, name))
        known = self._commit(repo, revision).files
        files = []
        for asked in json.loads(self.payload)["files"]:
            path = asked["path"]
            old = known.get(path)
            oid = None if old is None else old.sha256 if is_lfs(path) else old.oid
            files.append({"path": path, "uploadMode": "lfs" if is_lfs(path) else "regular", "shouldIgnore": False, "oid": oid})
        self._json({"files": files})

    def lfs_batch(self, name: str, kind: str = "models/") -> None:
        self._writable(self._repo(kind.rstrip("/"), name))
        objects = []
        for asked in json.loads(self.payload)["objects"]:
            oid = asked["oid"]
            actions = {"upload": {"href": f"{self.hub.cdn}/lfs/{oid}"}, "verify": {"href": f"{self.hub.address}/lfs-verify"}}
            objects.append(asked if oid in self.hub.blobs else asked | {"actions": actions})
        self._json({"transfer": "basic", "objects": objects})

    def lfs_put(self, oid: str) -> None:
        from hashlib import sha256

        if sha256(self.payload).hexdigest() != oid:
            raise RefusedError(400, message="the content is not what was announced")
        self.hub.blobs[oid] = self.payload
        self._send(200, b"", {"ETag": f'"{oid}"'})

    def lfs_verify(self) -> None:
        asked = json.loads(self.payload)
        found = self.hub.blobs.get(asked["oid"])
        if found is None or len(data_of(found)) != asked["size"]:
            raise RefusedError(404, message="never uploaded")
        self._json({})

    def push(self, kind: str, name: str, revision: str) -> None:
        """POST .../commit/REVISION: one line of JSON per change; all of it, or nothing."""
        repo = self._writable(self._repo(kind, name))
        lines = [json.loads(line) for line in self.payload.splitlines() if line]
        header = lines[0]["value"]
        if header.get("parentCommit") not in (None, repo.head.sha):
            raise RefusedError(412, message="A commit has happened since. Please refresh and try again.")
        files = dict(repo.head.files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = File.of(value["path"], base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.hub.blobs:
                    raise RefusedError(400, message=f"{value['path']} points to an object that was never uploaded")
                files[value["path"]] = File.of(value["path"], self.hub.blobs[value["oid"]])
            elif line["key"] == "deletedFile":
                del files[value["path"]]
            else:
                files = {path: file for path, file in files.items() if not path.startswith(f"{value['path'].rstrip('/')}/")}
        commit = repo.commit(files, header["summary"])
        self._json({"success": True, "commitOid": commit.sha, "commitUrl": f"{self.hub.address}/{kind}/{name}/commit/{commit.sha}"})


NAME = r"(?P<name>[^/]+(?:/[^/]+)?)"
OF = rf"/api/(?P<kind>models|datasets)/{NAME}"
READ = ("GET", "HEAD")
ROUTES: tuple[tuple[tuple[str, ...], str, Callable[..., None]], ...] = (
    (READ, r"/api/models", Handler.listing),
    (READ, r"/api/whoami-v2", Handler.whoami),
    (("POST",), r"/api/repos/create", Handler.create),
    (("POST",), r"/api/validate-yaml", Handler.validate),
    (READ, rf"{OF}/auth-check", Handler.may_read),
    (READ, rf"{OF}/refs", Handler.refs),
    (READ, rf"{OF}/commits/(?P<revision>[^/]+)", Handler.commits),
    (
        READ,
        rf"{OF}/tree/(?P<revision>[^/]+)(?:/(?P<path>.*))?",
        lambda self, path=None, **names: Handler.tree(self, path=path or "", **names),
    ),
    (("POST",), rf"{OF}/paths-info/(?P<revision>[^/]+)", Handler.paths_info),
    (("POST",), rf"{OF}/preupload/(?P<revision>[^/]+)", Handler.preupload),
    (("POST",), rf"{OF}/commit/(?P<revision>[^/]+)", Handler.push),
    (READ, rf"{OF}/revision/(?P<revision>[^/]+)", Handler.facts),
    (READ, OF, Handler.facts),
    (READ, r"/cdn/(?P<oid>[0-9a-f]{64})", Handler.cdn),
    (("PUT",), r"/lfs/(?P<oid>[0-9a-f]{64})", Handler.lfs_put),
    (("POST",), r"/lfs-verify", Handler.lfs_verify),
    (
        ("POST",),
        rf"/(?P<kind>datasets/)?{NAME}\.git/info/lfs/objects/batch",
        lambda self, kind, name: Handler.lfs_batch(self, name, kind or "models/"),
    ),
    (
        READ,
        rf"/(?P<kind>datasets/)?{NAME}/resolve/(?P<revision>[^/]+)/(?P<path>.+)",
        lambda self, kind, **names: Handler.resolve(self, kind=kind or "models/", **names),
    ),
)
