"""What the stand-in Hub holds: repositories with their commits, tokens and what these may read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any

from doesitrun.hub.safetensors_header import BrokenFileError, read_header

Content = bytes | Path | None
"""A file's bytes, where they lie, or None for one that is only listed (and answers 404 when it is asked for)."""
LFS_SUFFIXES = (".safetensors", ".parquet", ".bin", ".gguf")
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def digest(content: Content) -> str:
    """sha256 of a file, in hex; of what is only listed, of nothing."""
    if isinstance(content, Path):
        with content.open("rb") as file:
            import hashlib

            return hashlib.file_digest(file, "sha256").hexdigest()
    return sha256(content or b"").hexdigest()


def size(content: Content) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content or b"")


def data_of(content: Content) -> bytes:
    return content.read_bytes() if isinstance(content, Path) else content or b""


def is_lfs(path: str) -> bool:
    return path.endswith(LFS_SUFFIXES)


@dataclass(frozen=True)
class File:
    """A file of one commit, with the digests that the Hub tells of it."""

    content: Content
    sha256: str
    size: int
    oid: str

    @classmethod
    def of(cls, path: str, content: Content) -> File:
        whole, length = digest(content), size(content)
        if is_lfs(path):
            pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{whole}\nsize {length}\n".encode()
        else:
            pointer = data_of(content)
        return cls(content, whole, length, sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest())


@dataclass(frozen=True)
class Commit:
    """The whole of a repository at one moment."""

    sha: str
    title: str
    at: datetime
    files: dict[str, File]


@dataclass
class Repo:
    """A model or dataset repository."""

    kind: str
    id: str
    info: dict[str, Any] = field(default_factory=dict)
    gated: str | bool = False
    private: bool = False
    commits: list[Commit] = field(default_factory=list)

    @property
    def head(self) -> Commit:
        return self.commits[-1]

    def commit(self, files: dict[str, File], title: str = "initial commit") -> Commit:
        """A new commit whose sha depends on nothing but the content and what came before."""
        lines = "".join(f"{path}\0{files[path].sha256}\n" for path in sorted(files))
        before = self.commits[-1].sha if self.commits else f"{self.kind}/{self.id}"
        sha = sha1(f"{before}\0{title}\0{lines}".encode()).hexdigest()
        self.commits.append(Commit(sha, title, BEGINNING + timedelta(minutes=len(self.commits)), dict(files)))
        return self.head

    def at(self, revision: str) -> Commit | None:
        """The commit of a branch or sha; None when there is no such revision."""
        if revision == "main":
            return self.head
        return next((commit for commit in self.commits if commit.sha == revision), None)

    def described(self, commit: Commit) -> dict[str, Any]:
        """All that the API says of it; a listing with `expand` takes a part of this."""
        config = self._config(commit)
        known = {
            "_id": sha1(self.id.encode()).hexdigest()[:24],
            "id": self.id,
            "author": self.id.partition("/")[0],
            "sha": commit.sha,
            "lastModified": commit.at.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "createdAt": self.commits[0].at.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "private": self.private,
            "gated": self.gated,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "siblings": [{"rfilename": path} for path in sorted(commit.files)],
        }
        if self.kind == "model":
            known |= {"modelId": self.id, "library_name": "transformers"}
            if config is not None:
                known["config"] = {key: config[key] for key in ("architectures", "model_type", "quantization_config") if key in config}
        return known | self.info

    def _config(self, commit: Commit) -> dict[str, Any] | None:
        file = commit.files.get("config.json")
        if file is None or file.content is None:
            return None
        try:
            values = json.loads(data_of(file.content))
        except ValueError:
            return None
        return values if isinstance(values, dict) else None


def counted(folder: Path) -> dict[str, Any]:
    """What the Hub counts of a folder's safetensors files; nothing where a header cannot be read."""
    counts: dict[str, int] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            for tensor in read_header(path).values():
                counts[tensor.dtype] = counts.get(tensor.dtype, 0) + tensor.elements
    except BrokenFileError:
        return {}
    return {"safetensors": {"parameters": counts, "total": sum(counts.values())}} if counts else {}
