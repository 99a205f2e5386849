"""Models as they lie on the Hub or on disk: what is stored, without downloading a weight. The Hub is reached only here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from doesitrun.errors import DoesItRunError, HubError, ModelNotFoundError, UsageError
from doesitrun.hub.checkpoint import (
    CONFIG,
    INDEX,
    SIDE_CONFIGS,
    WEIGHTS,
    Checkpoint,
    describe,
    missing_weights,
    open_path,
    read_config,
)
from doesitrun.hub.safetensors_header import BITS, StoredTensor
from doesitrun.outcomes import Reason
from doesitrun.records import Refusal

TIMEOUT_S = 30.0

__all__ = ["Checkpoint", "HubThrottledError", "open_checkpoint"]


class HubThrottledError(HubError):
    """The Hub asked us to slow down; nothing is known of the model."""


def open_checkpoint(model: str, revision: str | None = None) -> Checkpoint | Refusal:
    """A Hub id, a local folder or a bare config.json as a checkpoint, or why it cannot be run.

    A path that exists wins over a Hub id of the same name, as in transformers. HF_ENDPOINT and HF_TOKEN are honoured.
    Raises ModelNotFoundError, HubError, and UsageError for what is neither a path nor an id.
    """
    path = _existing(model)
    if path is not None:
        if revision is not None:
            message = f"{model} is on your disk, where there are no revisions: leave --revision away."
            raise UsageError(message)
        return open_path(path)
    _check_id(model)
    return _open_repository(model, revision)


def _existing(model: str) -> Path | None:
    try:
        path = Path(model).expanduser()
        return path if model and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long for a path, no such user, a null character
        return None


def _check_id(model: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    if model.startswith((".", "/", "~")) or model.endswith(".json") or model.count("/") > 1 or "\\" in model:
        message = f"There is no folder or file {model!r}: check the path, or pass a Hub id such as Qwen/Qwen3-0.6B."
        raise ModelNotFoundError(message)
    try:
        validate_repo_id(model)
    except HFValidationError as error:
        message = (
            f"{model!r} is neither a path that exists nor a valid Hub id: pass a folder, a config.json or an id such as Qwen/Qwen3-0.6B."
        )
        raise UsageError(message) from error


def _open_repository(model_id: str, revision: str | None) -> Checkpoint | Refusal:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RemoteEntryNotFoundError

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        info = api.model_info(model_id, revision=revision, timeout=TIMEOUT_S)
        return described(api, model_id, info)
    except GatedRepoError:
        detail = f"{model_id} is gated: its licence must be accepted on its Hub page, and HF_TOKEN set to a token that may read it."
        return Refusal(model_id, revision or "main", Reason.GATED, detail)
    except RemoteEntryNotFoundError:
        return Refusal(model_id, revision or "main", Reason.NOT_TRANSFORMERS, f"{model_id} has no {CONFIG} at this revision.")
    except Exception as error:
        raise failure(error, model_id, revision) from error


def described(api: Any, model_id: str, info: Any, *, headers: bool = True) -> Checkpoint | Refusal:
    """A model that the Hub has told of, after its config was read. Raises what huggingface_hub raises.

    `headers=False` reads no weight headers, which take a request per shard.
    """
    names = [sibling.rfilename for sibling in info.siblings or ()]
    if CONFIG not in names:
        what = "is a diffusers pipeline" if "model_index.json" in names else f"has no {CONFIG}, so it is not a transformers checkpoint"
        return Refusal(model_id, info.sha, Reason.NOT_TRANSFORMERS, f"{model_id} {what}.")
    config = _download(api, model_id, info.sha, CONFIG)
    if isinstance(config, str):
        return Refusal(model_id, info.sha, Reason.INVALID_CONFIG, config)
    if WEIGHTS not in names and INDEX not in names:
        return Refusal(model_id, info.sha, *missing_weights(model_id, names))
    stored, tensors = _stored(api, model_id, info, headers=headers)
    return describe(
        model_id=model_id,
        revision=info.sha,
        source=model_id,
        config=config,
        side_configs=[_download(api, model_id, info.sha, name) for name in SIDE_CONFIGS if name in names],
        pipeline_tag=info.pipeline_tag,
        gated=bool(info.gated),
        has_weights=True,
        stored=stored,
        stored_bytes=sum(count * BITS.get(dtype, 8) // 8 for dtype, count in stored.items()),
        tensors=tensors,
    )


def _download(api: Any, model_id: str, revision: str, name: str) -> dict[str, Any] | str:
    return read_config(Path(api.hf_hub_download(model_id, name, revision=revision)))


def _stored(api: Any, model_id: str, info: Any, *, headers: bool) -> tuple[Mapping[str, int], Mapping[str, StoredTensor] | None]:
    """Elements by dtype as the Hub has counted them; where it has not, the headers are read, one request per shard."""
    counted = getattr(info.safetensors, "parameters", None)
    if counted or not headers:
        return dict(counted or {}), None
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    try:
        metadata = api.get_safetensors_metadata(model_id, revision=info.sha)
    except (NotASafetensorsRepoError, SafetensorsParsingError):
        return {}, None
    files: Iterable[Any] = metadata.files_metadata.values()
    tensors = {name: StoredTensor(t.dtype, tuple(t.shape)) for file in files for name, t in file.tensors.items()}
    return {}, tensors


def _status(error: BaseException | None) -> int | None:
    """The HTTP status behind an error. A file that could not be fetched hides it: its error says no more than "not found"."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is not None:
            return int(status)
        error = error.__cause__
    return None


def failure(error: Exception, model_id: str, revision: str | None) -> Exception:
    """Our error for one of the Hub's. Only its class and status are told: its text may hold a token or a signed address."""
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, DoesItRunError):
        return error
    status = _status(error)
    if isinstance(error, RevisionNotFoundError):
        return ModelNotFoundError(f"{model_id} has no revision {revision!r}: pass a branch, a tag or a commit that it has.")
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        return ModelNotFoundError(f"The Hub has no model {model_id}, or it is private: check the name, or set HF_TOKEN.")
    if status == 429:
        return HubThrottledError("The Hub asked us to slow down (429): wait five minutes, or set HF_TOKEN for a higher limit.")
    if status in (401, 403):
        return HubError(f"The Hub refused access to {model_id} ({status}): check that HF_TOKEN is valid and may read it.")
    if status is not None:
        return HubError(f"The Hub failed while it was asked for {model_id} ({status}): try again later.")
    return HubError(f"The Hub could not be reached for {model_id} ({type(error).__name__}): check the network, or pass a local folder.")
