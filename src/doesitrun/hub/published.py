"""A published dataset on the Hub, as a folder of this disk: its newest commit, of which only new files are fetched."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from doesitrun.errors import DoesItRunError, HubError, UsageError

TIMEOUT_S = 30.0
_ADDRESS = re.compile(r"hf://datasets/(?P<id>[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)/?")


def dataset_id(address: str) -> str:
    """ORG/NAME of hf://datasets/ORG/NAME. Raises UsageError for any other address."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise UsageError(f"{address} names no dataset: write hf://datasets/ORG/NAME.")
    return match["id"]


class PublishedDataset:
    """A dataset of the Hub. HF_ENDPOINT and HF_TOKEN are honoured."""

    def __init__(self, name: str, recent_days: int) -> None:
        """Of rankings and plans, those of so many newest days are fetched."""
        self._name = name
        self._recent_days = recent_days
        self._commit: str | None = None
        self._folder: Path | None = None

    def folder(self) -> Path:
        """The folder that holds its newest commit: one request if nothing changed. Raises HubError."""
        from huggingface_hub import HfApi

        api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
        try:
            info = api.dataset_info(self._name, timeout=TIMEOUT_S)
            if self._folder is None or info.sha != self._commit:
                self._folder = Path(self._fetched(api, info))
                self._commit = info.sha
        except DoesItRunError:
            raise
        except Exception as error:
            raise _failure(error, self._name) from error
        return self._folder

    def _fetched(self, api: Any, info: Any) -> str:
        names = wanted_files((sibling.rfilename for sibling in info.siblings or ()), self._recent_days)
        if not names:
            message = f"The dataset {self._name} has no data/*.parquet: check its name, or publish something there first."
            raise HubError(message)
        return str(api.snapshot_download(self._name, repo_type="dataset", revision=info.sha, allow_patterns=[_literal(n) for n in names]))


def wanted_files(names: Iterable[str], recent_days: int) -> list[str]:
    """Of a dataset's files those that a look-up reads: all rows, and rankings and plans of the newest days."""
    parquet = sorted(name for name in names if name.endswith(".parquet"))
    rows = [name for name in parquet if name.startswith("data/")]
    rankings = [name for name in parquet if name.startswith("rankings/")]
    plans = [name for name in parquet if name.startswith("plans/") and name.count("/") == 2]
    days = sorted({name.split("/")[1] for name in plans})[-recent_days:]
    return [*rows, *rankings[-recent_days:], *(name for name in plans if name.split("/")[1] in days)]


def _literal(name: str) -> str:
    """The name as a pattern that fits it alone."""
    return re.sub(r"([*?\[])", r"[\1]", name)


def _failure(error: Exception, name: str) -> HubError:
    """Only the error's class and status are told: its text may hold a token or a signed address."""
    from huggingface_hub.errors import RepositoryNotFoundError

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        return HubError(f"The Hub has no dataset {name}, or it is private: check the name, or set HF_TOKEN.")
    if status is not None:
        return HubError(f"The Hub failed while it was asked for the dataset {name} ({status}): try again later.")
    return HubError(f"The Hub could not be reached for the dataset {name} ({type(error).__name__}): check the network, or open a folder.")
