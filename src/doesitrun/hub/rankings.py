"""What is popular on the Hub: its listings as ranked lines, and each model's config without its weights."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from doesitrun.errors import HubError, UsageError
from doesitrun.hub.checkpoint import Checkpoint, first_architecture, named_type
from doesitrun.hub.repository import HubThrottledError, described, failure
from doesitrun.outcomes import Reason
from doesitrun.records import Ranked, Refusal

ORDERS = {"trending": "trending_score", "downloads": "downloads"}
"""Ranking -> how the Hub calls that order."""
EXPAND = (
    "config", "downloads", "gated", "library_name", "likes", "pipeline_tag", "private", "safetensors", "sha", "siblings", "tags",
    "trendingScore",
)  # fmt: skip
"""What a listing is asked for: with this, a model's config.json is all that planning still needs."""
RELATIONS = ("quantized", "finetune", "adapter", "merge")
READERS = 8
"""Configs that are read at once."""
GIVEN_UP = 10
"""So many models in a row that the Hub fails for are its own fault."""


@dataclass(frozen=True)
class Listed:
    """A place of a ranking, and what the Hub's listing told besides."""

    ranked: Ranked
    info: Any
    private: bool = False


def take(task: str, by: str, top: int) -> list[Listed]:
    """The first `top` models of a task in the Hub's own order. Raises HubError, also for a listing that does not end."""
    from huggingface_hub import HfApi

    if by not in ORDERS:
        raise UsageError(f"There is no ranking by {by!r}: choose one of {', '.join(ORDERS)}.")
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    now = datetime.now(UTC).replace(microsecond=0)
    found: dict[str, Listed] = {}
    told = 0
    try:
        infos = api.list_models(pipeline_tag=task, sort=ORDERS[by], limit=top, expand=list(EXPAND))  # type: ignore[arg-type]
        for info in infos:
            told += 1
            found.setdefault(info.id, Listed(_ranked(info, task, by, len(found) + 1, now), info, bool(info.private)))
    except json.JSONDecodeError as error:
        raise HubError("The Hub's listing is no JSON: check HF_ENDPOINT, and that no proxy asks for a login.") from error
    except Exception as error:
        raise failure(error, f"the listing of {task}", None) from error
    if len(found) < told * 0.9:  # ranks move while pages are read, so that a few models come twice
        raise HubError("The Hub's listing repeats itself: try again later, or take a smaller --top.")
    return list(found.values())


def _ranked(info: Any, task: str, by: str, rank: int, now: datetime) -> Ranked:
    config = info.config if isinstance(info.config, dict) else {}
    base, relation = _base(info.tags or ())
    return Ranked(
        model_id=info.id,
        task=task,
        by=by,
        rank=rank,
        downloads=info.downloads,
        likes=info.likes,
        trending_score=None if info.trending_score is None else float(info.trending_score),
        pipeline_tag=info.pipeline_tag,
        library=info.library_name,
        gated=info.gated if isinstance(info.gated, str) else "manual" if info.gated else None,
        parameters=info.safetensors.total if info.safetensors else None,
        architecture=first_architecture(config) or None,
        model_type=named_type(config) or None,
        base_model=base,
        base_relation=relation,
        sha=info.sha,
        taken_at=now,
    )


def _base(tags: Sequence[str]) -> tuple[str | None, str | None]:
    """(base model, relation) from tags such as base_model:quantized:org/name. Several bases are a merge."""
    told = [tag.removeprefix("base_model:") for tag in tags if tag.startswith("base_model:")]
    for relation in RELATIONS:
        bases = sorted(each.removeprefix(f"{relation}:") for each in told if each.startswith(f"{relation}:"))
        if bases:
            return bases[0], relation
    plain = sorted(each for each in told if ":" not in each)
    return (plain[0], None) if plain else (None, None)


def read_all(listed: Sequence[Listed], seen: Callable[[int], None]) -> dict[str, Checkpoint | Refusal]:
    """What each model is, by its id, or why it cannot be run; `seen` hears how many are done.

    A config that was read once, at the same commit, is not asked for again. Raises HubError when the Hub asks us to slow
    down for too long, or fails for many models in a row; a single one that it fails for is a refusal that says so.
    """
    found: dict[str, Checkpoint | Refusal] = {}
    failed: list[str] = []
    with ThreadPoolExecutor(READERS) as pool:
        answers = pool.map(read, listed)
        try:
            for each, answer in zip(listed, answers, strict=True):
                found[each.ranked.model_id] = answer
                failed = [*failed, answer.detail] if isinstance(answer, Refusal) and answer.reason is Reason.HUB_ERROR else []
                _check_hub(failed)
                seen(len(found))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return found


def _check_hub(failed: Sequence[str]) -> None:
    if len(failed) == GIVEN_UP:
        raise HubError(f"The Hub failed for {GIVEN_UP} models in a row. {failed[-1]}")


def read(listed: Listed) -> Checkpoint | Refusal:
    """One model of a listing as a checkpoint, or why it cannot be run. Raises HubError."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RemoteEntryNotFoundError, RepositoryNotFoundError

    name, sha, gated = listed.ranked.model_id, listed.ranked.sha or "main", listed.ranked.gated
    try:
        return described(HfApi(endpoint=os.environ.get("HF_ENDPOINT")), name, listed.info, headers=False)
    except GatedRepoError:
        how = "by hand, by its authors" if gated == "manual" else "at once"
        detail = (
            f"{name} is gated: accept its licence on its Hub page (access is given {how}), and set HF_TOKEN to a token that may read it."
        )
        return Refusal(name, sha, Reason.GATED, detail)
    except RemoteEntryNotFoundError:
        return Refusal(name, sha, Reason.NOT_TRANSFORMERS, f"{name} lists a config.json that is not there at this revision.")
    except RepositoryNotFoundError:
        return Refusal(name, sha, Reason.PRIVATE, f"{name} is private, or was taken away since it was listed.")
    except Exception as error:
        found = failure(error, name, None)
        if not isinstance(found, HubError) or isinstance(found, HubThrottledError):
            raise found from error
        return Refusal(name, sha, Reason.HUB_ERROR, str(found))
