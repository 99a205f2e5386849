"""Datasets on the Hub: what lies in one, its files, and a commit of several files at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any

from doesitrun.errors import DoesItRunError, HubError, ModelNotFoundError, UsageError
from doesitrun.hub.repository import HubThrottledError, failure

KIND = "dataset"


@dataclass(frozen=True)
class RemoteFile:
    """A file of a commit. `sha256` is None for small ones, whose git digest stands for them."""

    path: str
    size: int
    oid: str
    sha256: str | None

    def holds(self, data: bytes) -> bool:
        """True when these are its bytes."""
        if self.sha256 is not None:
            return self.sha256 == sha256(data).hexdigest()
        return self.oid == sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class RemoteDataset:
    """A dataset at one commit."""

    name: str
    commit: str
    files: Mapping[str, RemoteFile]


def _api() -> Any:
    from huggingface_hub import HfApi

    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"))


def check_name(name: str) -> None:
    """Raises UsageError for what is no ORG/NAME."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise UsageError(f"{name!r} is no dataset's id: pass ORG/NAME.") from error
    if name.count("/") != 1:
        raise UsageError(f"{name!r} names no owner: pass ORG/NAME.")


def look(name: str, revision: str | None = None) -> RemoteDataset:
    """What lies in a dataset. Raises ModelNotFoundError where there is none that we may see, and HubError."""
    from huggingface_hub import RepoFile

    check_name(name)
    try:
        api = _api()
        commit = api.dataset_info(name, revision=revision, timeout=30).sha
        entries = api.list_repo_tree(name, repo_type=KIND, revision=commit, recursive=True)
        files = {
            entry.path: RemoteFile(entry.path, entry.size, entry.blob_id, entry.lfs.sha256 if entry.lfs else None)
            for entry in entries
            if isinstance(entry, RepoFile)
        }
    except Exception as error:
        raise _failure(error, name, revision) from error
    return RemoteDataset(name, commit, files)


def fetch(dataset: RemoteDataset, path: str) -> Path:
    """A file of the commit, in the client's cache. Raises HubError."""
    try:
        return Path(_api().hf_hub_download(dataset.name, path, repo_type=KIND, revision=dataset.commit))
    except Exception as error:
        raise _failure(error, f"{path} of {dataset.name}", None) from error


def create(name: str, *, private: bool) -> None:
    """Makes an empty dataset. Raises HubError."""
    check_name(name)
    try:
        _api().create_repo(name, repo_type=KIND, private=private)
    except Exception as error:
        raise _failure(error, name, None) from error


def commit(dataset: RemoteDataset, files: Mapping[str, bytes], message: str) -> RemoteDataset:
    """Puts the files into the dataset in one commit on top of the one that was looked at, and returns what lies there then.

    Raises HubError: nothing is changed when somebody else has committed since, or the token may not write there.
    """
    from huggingface_hub import CommitOperationAdd

    operations = [CommitOperationAdd(path, data) for path, data in sorted(files.items())]
    try:
        done = _api().create_commit(dataset.name, operations, commit_message=message, repo_type=KIND, parent_commit=dataset.commit)
    except Exception as error:
        raise _failure(error, dataset.name, None) from error
    return look(dataset.name, done.oid)


def missing(dataset: RemoteDataset, files: Mapping[str, bytes]) -> list[str]:
    """Those of the files that the dataset does not hold, byte for byte."""
    return [path for path, data in files.items() if path not in dataset.files or not dataset.files[path].holds(data)]


def parquet_paths(paths: Iterable[str], folder: str = "") -> list[str]:
    """The Parquet files below a folder, by name."""
    return sorted(path for path in paths if path.endswith(".parquet") and path.startswith(folder))


def _failure(error: Exception, name: str, revision: str | None) -> Exception:
    """Our error for one of the Hub's; its words may hold a token or a signed address, so they are not told."""
    found = failure(error, name, revision)
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(found, ModelNotFoundError) and revision is None:
        return ModelNotFoundError(f"The Hub has no dataset {name}, or it is private: check the name, set HF_TOKEN, or pass --create.")
    if status == 412:
        return HubError(f"Somebody else has changed {name} meanwhile, so nothing was published: call it again.")
    if status in (401, 403):
        return HubError(f"The Hub does not let us write to {name} ({status}): set HF_TOKEN to a token that may.")
    if isinstance(found, HubThrottledError) or not isinstance(found, DoesItRunError) or status is not None:
        return found
    if isinstance(error, RuntimeError | ValueError):  # an upload's own error, with the Hub's behind it
        return HubError(f"The upload to {name} failed, so nothing was published: call it again.")
    return found
