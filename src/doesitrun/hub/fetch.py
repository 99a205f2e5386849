"""Downloads one model into the Hub's cache, in a process of its own: it can be stopped, and it cannot hang its caller.

Run as a file, with Python's safe path on: `python fetch.py REQUEST.json ANSWER.json`; it imports nothing of ours.

Request: {"model", "revision", "code": whether the repository's Python files are wanted}.
Answer: {"bytes": of the files, "was_there": whether the weights were in the cache before, "problem": null or one of
gated, throttled, network, disk, hub, "detail": a sentence}.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

KINDS = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "model*.safetensors")
CODE = ("*.py",)
SUBFOLDERS = ("*/*",)
TIMEOUT_S = 30.0


def fetch(model: str, revision: str, *, code: bool) -> dict[str, Any]:
    from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    kinds = [*KINDS, *(CODE if code else ())]
    info = HfApi(endpoint=os.environ.get("HF_ENDPOINT")).model_info(model, revision=revision, timeout=TIMEOUT_S)
    names = [sibling.rfilename for sibling in info.siblings or ()]
    wanted = list(filter_repo_objects(names, allow_patterns=kinds, ignore_patterns=list(SUBFOLDERS)))
    weights = [name for name in wanted if name.endswith(".safetensors")]
    was_there = all(isinstance(try_to_load_from_cache(model, name, revision=revision), str) for name in weights)
    folder = Path(snapshot_download(model, revision=revision, allow_patterns=kinds, ignore_patterns=list(SUBFOLDERS)))
    return {"bytes": sum((folder / name).stat().st_size for name in wanted), "was_there": was_there, "problem": None, "detail": ""}


def problem(error: Exception) -> tuple[str, str]:
    """Kind of the failure and a sentence; the error's own text may hold a signed address, so its class is told."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk", "The disk is full."
    if status == 429:
        return "throttled", "The Hub asked us to slow down (429)."
    if status in (401, 403):
        return "gated", f"The Hub refused the download ({status})."
    if status is not None:
        return "hub", f"The Hub failed during the download ({status})."
    return "network", f"The download failed ({type(error).__name__})."


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        answer = fetch(request["model"], request["revision"], code=request["code"])
    except Exception as error:  # noqa: BLE001  whatever it is, the caller gets its kind
        kind, detail = problem(error)
        answer = {"bytes": 0, "was_there": False, "problem": kind, "detail": detail}
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
