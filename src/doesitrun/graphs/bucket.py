"""Storage buckets of the Hub, by huggingface_hub's own functions: its listing, its batches, its transfer."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from doesitrun.errors import UsageError
from doesitrun.graphs.stores import Stored, Told, Upload, answering

_URL = re.compile(r"hf://buckets/(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)(/(?P<prefix>[A-Za-z0-9._+=@,/-]*))?")
_BATCH = 1000
"""Files of one request; huggingface_hub itself sends no more at once."""


@dataclass(frozen=True)
class BucketStore:
    """hf://buckets/NAMESPACE/NAME/PREFIX. HF_TOKEN and HF_ENDPOINT are honoured."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """The store at this address. Raises UsageError."""
        match = _URL.fullmatch(url)
        if match is None:
            raise UsageError(f"{url!r} is no bucket of the Hub: write hf://buckets/NAMESPACE/NAME/PREFIX.")
        return cls(match["bucket"], (match["prefix"] or "").strip("/"))

    @property
    def url(self) -> str:
        return f"hf://buckets/{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @cached_property
    def _api(self) -> Any:
        from huggingface_hub import HfApi
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        disable_progress_bars()
        return HfApi(endpoint=os.environ.get("HF_ENDPOINT"))

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self.prefix, name) if part)

    def _tree(self, prefix: str) -> dict[str, Any]:
        from huggingface_hub.errors import EntryNotFoundError

        start = f"{self.prefix}/" if self.prefix else ""
        wanted = self._path(prefix)
        try:
            found = list(self._api.list_bucket_tree(self.bucket, prefix=wanted or None, recursive=True))
        except EntryNotFoundError:  # no such folder in the bucket yet
            return {}
        inside = f"{wanted}/" if wanted else ""
        return {each.path[len(start) :]: each for each in found if each.type == "file" and each.path.startswith(inside)}

    def files(self, prefix: str = "") -> dict[str, Stored]:
        with answering(self.url):
            return {name: Stored(each.size, _seconds(each)) for name, each in self._tree(prefix).items()}

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        import tempfile

        with tempfile.TemporaryDirectory() as place, answering(self.url):
            paths = {name: Path(place) / str(number) for number, name in enumerate(names)}
            self._download(paths)
            return {name: path.read_bytes() for name, path in paths.items() if path.exists()}

    def fetch(self, wanted: Mapping[str, Path], told: Told) -> dict[str, str]:
        with answering(self.url):
            gone = self._download(wanted)
        for _ in wanted:
            told()
        return dict.fromkeys(gone, "is gone")

    def _download(self, wanted: Mapping[str, Path]) -> Sequence[str]:
        """Fetches what is there; returns what is not."""
        paths = {self._path(name): name for name in wanted}
        found = list(self._api.get_bucket_paths_info(self.bucket, list(paths)))
        if found:
            self._api.download_bucket_files(self.bucket, [(each, wanted[paths[each.path]]) for each in found])
        there = {paths[each.path] for each in found}
        return [name for name in wanted if name not in there]

    def add(self, uploads: Sequence[Upload], told: Told) -> Sequence[str]:
        taken: list[str] = []
        with answering(self.url):
            for start in range(0, len(uploads), _BATCH):
                part = uploads[start : start + _BATCH]
                # Buckets have no upload that spares what is there, so it is asked for right before.
                there = {each.path for each in self._api.get_bucket_paths_info(self.bucket, [self._path(each.name) for each in part])}
                free = [each for each in part if self._path(each.name) not in there]
                if free:
                    self._send(free)
                taken += [each.name for each in part if self._path(each.name) in there]
                for _ in part:
                    told()
        return taken

    def _send(self, uploads: Sequence[Upload]) -> None:
        self._api.batch_bucket_files(self.bucket, add=[(each.source, self._path(each.name)) for each in uploads])

    def replace(self, uploads: Sequence[Upload]) -> None:
        with answering(self.url):
            if uploads:
                self._send(uploads)

    def remove(self, names: Sequence[str]) -> None:
        with answering(self.url):
            if names:
                self._api.batch_bucket_files(self.bucket, delete=[self._path(name) for name in names])


def _seconds(each: Any) -> float:
    modified = each.uploaded_at or each.mtime
    return modified.timestamp() if modified else 0.0
