"""What the stack's scripts are asked, and the names under which their answers are kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from doesitrun.records import Dtype, Plan
from doesitrun.tasks import TASKS
from doesitrun.verify.evidence import DeviceRun, MalformedError
from doesitrun.verify.probes import asked_sequences, judge_texts, read_probes
from doesitrun.verify.thresholds import THRESHOLDS

PASSAGE = (
    "In the first week of spring the river rose again, and the people of the village carried their chairs and "
    "blankets up to the old school on the hill. Nobody was afraid. The water came every few years, stayed for a "
    "night or two, and left the fields darker and richer than before. The children thought of it as a holiday. "
    "They slept on the floor of the largest room, listened to the rain on the roof, and asked the baker to tell "
    "them once more about the year when a brown cow had floated past the church, perfectly calm, standing on a "
    "barn door as if it were a boat."
)
"""Plain English prose, written for this purpose, so that no model has seen it."""

REFERENCE_FORMAT = 2
"""Changes with what reference.py and judge.py compute, so that kept answers of older ones are not reused."""


def reference_request(plan: Plan, result: Mapping[str, Any]) -> dict[str, Any]:
    """What reference.py is asked about a run. `picture` is the task's file name: the caller makes it a path.

    A usable result is needed: call `is_usable` first.
    """
    task = TASKS[plan.task]
    return {
        "model": plan.source,
        "revision": None if plan.is_local else plan.revision,
        "auto_class": task.auto_class,
        "processor_class": task.processor_class,
        "prompt": plan.prompt,
        "picture": task.picture,
        "dtype": plan.dtype.value,
        "prompt_ids": result["prompt_ids"],
        "tokens": result["tokens"],
        "top_ids": result["top_ids"],
        "eos_ids": result["eos_ids"],
        "probes": asked_sequences(result),
        "passages": [{name: each[name] for name in ("prompt_ids", "tokens", "top_ids")} for each in result.get("passages", ())],
        "passage": PASSAGE,
        "suspicious_loss": THRESHOLDS.passage_loss,
        "trust_remote_code": plan.trust_remote_code,
        "threads": None,
    }


def judge_request(plan: Plan, result: Mapping[str, Any], judge: str, revision: str | None = None) -> dict[str, Any]:
    """What judge.py is asked about a run's text and those of its probes."""
    own = {"prompt": plan.prompt, "text": result["text"]}
    return {"model": judge, "revision": revision, "texts": [own, *judge_texts(plan, result)]}


def is_usable(plan: Plan, result: Mapping[str, Any]) -> bool:
    """True when a reference and a judge may be asked about the result; otherwise `verdict` says what is wrong with it."""
    try:
        DeviceRun.read(result, plan.new_tokens, plan.cores)
        read_probes(plan, result)
    except MalformedError:
        return False
    return True


def needs_judge(plan: Plan) -> bool:
    """True when the text is judged: whenever the model is sharded."""
    return plan.cores > 1


def reference_memory(plan: Plan) -> int:
    """Bytes of host memory that the reference takes: the weights in float32, and room for one layer and the logits."""
    width = 4 if plan.dtype is Dtype.FLOAT32 else 2
    return plan.weights_bytes * 4 // width * 5 // 4 + 2_000_000_000


def reference_key(plan: Plan, request: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Name under which the answer is kept: the sha256 of what it depends on.

    The content of the model stands for its place, so a folder that was moved is still known.
    """
    content = {name: value for name, value in request.items() if name not in ("model", "revision", "threads", "picture")}
    return _digest({"reference": REFERENCE_FORMAT, "model": plan.model_id, "revision": plan.revision, **content}, versions)


def judge_key(request: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Name under which the judge's answer is kept: the sha256 of what it depends on."""
    return _digest({"judge": REFERENCE_FORMAT, **request}, versions)


def _digest(content: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    relevant = {name: versions.get(name) for name in ("torch", "transformers")}
    text = json.dumps({**content, "versions": relevant}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
