"""Where graphs are published, by URL: a folder, an S3 bucket (or whatever else fsspec reaches), a storage bucket of the Hub.

A store keeps files by name below its URL. A file that is there is whole; none is ever overwritten unless asked.
Every failure is a GraphStoreError of one sentence.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from doesitrun.errors import GraphStoreError, UsageError
from doesitrun.graphs.folder import ABANDONED_S, INCOMING, scan

WORKERS = 16
_LARGE_BYTES = 64_000_000
"""Beyond it a file is sent in parts, not held in memory."""
_PLAIN = re.compile(r"[A-Za-z0-9._~:/@+=,-]+")


@dataclass(frozen=True)
class Stored:
    """A file of a store."""

    size: int
    modified: float
    """Seconds since 1970; 0 where the store does not say."""


@dataclass(frozen=True)
class Upload:
    """What is to be stored: a file, or bytes."""

    name: str
    source: Path | bytes


Told = Callable[[], None]
"""Is called after each file that was moved."""


class Store(Protocol):
    """A place for graphs. Names are relative to its URL; a prefix is a whole folder."""

    @property
    def url(self) -> str: ...

    def files(self, prefix: str = "") -> dict[str, Stored]:
        """The files below the prefix, by name; empty where there are none. Raises GraphStoreError."""
        ...

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """The content of small files; one that is gone is left out. Raises GraphStoreError."""
        ...

    def fetch(self, wanted: Mapping[str, Path], told: Told) -> dict[str, str]:
        """Copies files to fresh paths; returns which could not be had and why, as clauses. A full disk here ends it. Raises OSError."""
        ...

    def add(self, uploads: Sequence[Upload], told: Told) -> Sequence[str]:
        """Stores files that are not there yet; returns the names that another writer had stored meanwhile. Raises GraphStoreError."""
        ...

    def replace(self, uploads: Sequence[Upload]) -> None:
        """Stores files, over others of that name where there are any. Raises GraphStoreError."""
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Removes files; one that is gone already is none to complain of. Raises GraphStoreError."""
        ...


def open_store(url: str) -> Store:
    """The store at a URL or path. Nothing is asked of it yet. Raises UsageError for what is no such URL."""
    parts = urlsplit(url)
    if not url.strip() or not url.isprintable():
        raise UsageError("The store of graphs needs a URL: a folder, s3://BUCKET/PREFIX or hf://buckets/NAMESPACE/NAME/PREFIX.")
    if parts.scheme in ("", "file"):
        return FolderStore(Path(parts.path if parts.scheme else url).expanduser().absolute())
    if not _PLAIN.fullmatch(url) or "/../" in f"{url}/" or parts.query or parts.fragment:
        raise UsageError(f"{url!r} is no address of a store: use letters, digits and - _ . / alone.")
    if "@" in parts.netloc:
        raise UsageError("The address of a store is published with each row, so it may hold no login: pass that in the environment.")
    if parts.scheme == "hf":
        from doesitrun.graphs.bucket import BucketStore

        return BucketStore.parse(url)
    return _remote(url.rstrip("/"), parts.scheme)


def _remote(url: str, scheme: str) -> Store:
    import fsspec.core  # type: ignore[import-untyped]

    extra = {"s3": "pip install 'doesitrun[s3]'"}.get(scheme, f"install the package that fsspec needs for {scheme}://")
    try:
        filesystem, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except ImportError:
        raise UsageError(f"{scheme}:// needs a package that is not installed: {extra}.") from None
    except ValueError:
        raise UsageError(f"{url!r}: {scheme}:// is not known; use a folder, s3:// or hf://buckets/.") from None
    return RemoteStore(url, filesystem, root.rstrip("/"))


@contextmanager
def answering(url: str) -> Iterator[None]:
    """Whatever a store's library raises as one sentence."""
    try:
        yield
    except (GraphStoreError, KeyboardInterrupt):
        raise
    except Exception as error:
        message = f"The store {url} {_clause(error)}."
        raise GraphStoreError(message) from error


def _clause(error: BaseException) -> str:
    said = re.sub(r"\s+", " ", str(error)).strip(" .") or type(error).__name__
    if isinstance(error, FileNotFoundError) or type(error).__name__ in ("BucketNotFoundError", "RepositoryNotFoundError"):
        return f"is not there ({said[:200]}): check the address, or create the bucket"
    if isinstance(error, PermissionError) or re.search(r"\b(401|403)\b", said):
        return f"refuses access ({said[:200]}): check your credentials and what they allow"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "is full: free some space there, or use another store"
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        return "is read-only: use another store"
    return f"cannot be used ({type(error).__name__}: {said[:300]}): check the address, the network and your credentials"


def at_once(work: Callable[[Any], Any], items: Sequence[Any], told: Told = lambda: None) -> list[Any]:
    """The results in order; the first failure ends what has not begun, and is raised."""
    with ThreadPoolExecutor(WORKERS) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            results = []
            for future in futures:
                results.append(future.result())
                told()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


# ---------------------------------------------------------------------------------- a folder
@dataclass(frozen=True)
class FolderStore:
    """A folder of this machine, or one that many machines mount."""

    root: Path

    @property
    def url(self) -> str:
        return str(self.root)

    def files(self, prefix: str = "") -> dict[str, Stored]:
        with answering(self.url):
            if self.root.exists() and not self.root.is_dir():
                message = f"The store {self.url} is a file: name a folder."
                raise GraphStoreError(message)
            found = scan(self.root / prefix)
            start = f"{prefix.strip('/')}/" if prefix else ""
            return {start + name: Stored(stat.st_size, stat.st_mtime) for name, stat in found.items()}

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        found = {}
        with answering(self.url):
            for name in names:
                with suppress(FileNotFoundError):
                    found[name] = (self.root / name).read_bytes()
        return found

    def fetch(self, wanted: Mapping[str, Path], told: Told) -> dict[str, str]:
        def copy(item: tuple[str, Path]) -> tuple[str, str]:
            try:
                source = (self.root / item[0]).open("rb")
            except OSError as error:
                return item[0], "is gone" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
            with source:
                _write(source, item[1])
            return item[0], ""

        return {name: why for name, why in at_once(copy, list(wanted.items()), told) if why}

    def add(self, uploads: Sequence[Upload], told: Told) -> Sequence[str]:
        def put(upload: Upload) -> str:
            target = self.root / upload.name
            with _beside(target, upload.source) as temporary:
                try:
                    os.link(temporary, target)  # unlike a rename, it never replaces
                except FileExistsError:
                    return upload.name
                except OSError as error:  # a disk without hard links; two writers of one entry are then told apart by the check alone
                    if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                        raise
                    if target.exists():
                        return upload.name
                    temporary.replace(target)
            return ""

        with answering(self.url):
            return [name for name in at_once(put, uploads, told) if name]

    def replace(self, uploads: Sequence[Upload]) -> None:
        with answering(self.url):
            for upload in uploads:
                target = self.root / upload.name
                with _beside(target, upload.source) as temporary:
                    temporary.replace(target)

    def remove(self, names: Sequence[str]) -> None:
        with answering(self.url):
            for name in names:
                with suppress(FileNotFoundError):
                    (self.root / name).unlink()
            for left in self.root.rglob(f"{INCOMING}*"):  # of a writer that was killed
                with suppress(OSError):
                    if time.time() - left.stat().st_mtime > ABANDONED_S:
                        left.unlink()
            for place in sorted({parent for name in names for parent in (self.root / name).parents}, reverse=True):
                if place.is_relative_to(self.root):
                    with suppress(OSError):  # not empty, or gone
                        place.rmdir()


def _write(source: Any, path: Path) -> None:
    with path.open("xb") as file:
        while chunk := source.read(1 << 20):
            file.write(chunk)


@contextmanager
def _beside(target: Path, source: Path | bytes) -> Iterator[Path]:
    """The content in a file beside its place, which is gone afterwards."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f"{INCOMING}{secrets.token_hex(8)}"
    try:
        if isinstance(source, bytes):
            temporary.write_bytes(source)
        else:
            with source.open("rb") as file:
                _write(file, temporary)
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink()


# ---------------------------------------------------------------------------------- what fsspec reaches
@dataclass(frozen=True)
class RemoteStore:
    """An object store by way of fsspec. A whole object appears at once, which object stores promise."""

    url: str
    filesystem: Any
    root: str
    """The URL's path as the filesystem knows it."""

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def files(self, prefix: str = "") -> dict[str, Stored]:
        with answering(self.url):
            found = self.filesystem.find(self._path(prefix), detail=True)
            if not found:  # nothing, or no bucket: asking for the bucket tells
                self.filesystem.ls(self.root.partition("/")[0])
        start = f"{self.root}/"
        # An object whose name does not begin with the prefix's folder belongs to a neighbour.
        return {
            path[len(start) :]: Stored(info.get("size") or 0, _seconds(info))
            for path, info in found.items()
            if path.startswith(start) and info.get("type") != "directory"
        }

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        def one(name: str) -> tuple[str, bytes | None]:
            try:
                return name, self.filesystem.cat_file(self._path(name))
            except FileNotFoundError:
                return name, None

        with answering(self.url):
            return {name: data for name, data in at_once(one, names) if data is not None}

    def fetch(self, wanted: Mapping[str, Path], told: Told) -> dict[str, str]:
        def get(item: tuple[str, Path]) -> tuple[str, str]:
            try:
                self.filesystem.get_file(self._path(item[0]), str(item[1]))
            except FileNotFoundError:
                return item[0], "is gone"
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                    raise
                return item[0], f"could not be fetched ({str(error)[:200]})"
            except Exception as error:  # noqa: BLE001 every library of a store has errors of its own; an entry that cannot be had is compiled
                return item[0], f"could not be fetched ({type(error).__name__}: {str(error)[:200]})"
            return item[0], ""

        return {name: why for name, why in at_once(get, list(wanted.items()), told) if why}

    def add(self, uploads: Sequence[Upload], told: Told) -> Sequence[str]:
        def put(upload: Upload) -> str:
            try:
                self._send(upload, mode="create")
            except FileExistsError:
                return upload.name
            except OSError as error:
                said = str(error)
                if "NotImplemented" in said:  # a server without conditional writes: asked first, as well as can be
                    if self.filesystem.exists(self._path(upload.name)):
                        return upload.name
                    self._send(upload, mode="overwrite")
                elif "PreconditionFailed" in said or "pre-conditions" in said:
                    return upload.name
                else:
                    raise
            return ""

        with answering(self.url):
            return [name for name in at_once(put, uploads, told) if name]

    def _send(self, upload: Upload, mode: str) -> None:
        path = self._path(upload.name)
        if isinstance(upload.source, bytes):
            self.filesystem.pipe_file(path, upload.source, mode=mode)
        elif upload.source.stat().st_size > _LARGE_BYTES:
            self.filesystem.put_file(str(upload.source), path, mode=mode)
        else:
            self.filesystem.pipe_file(path, upload.source.read_bytes(), mode=mode)

    def replace(self, uploads: Sequence[Upload]) -> None:
        with answering(self.url):
            for upload in uploads:
                self._send(upload, mode="overwrite")

    def remove(self, names: Sequence[str]) -> None:
        with answering(self.url):
            if names:
                self.filesystem.rm([self._path(name) for name in names])


def _seconds(info: Mapping[str, Any]) -> float:
    modified = info.get("LastModified") or info.get("mtime") or info.get("created") or 0
    return float(modified.timestamp()) if hasattr(modified, "timestamp") else float(modified)
