"""The judge: how likely a small language model finds a text, given its prompt.

    python judge.py REQUEST.json ANSWER.json

    {"model", "revision", "dtype", "texts": [{"prompt", "text"}]} -> {"nll": [float | null], "tokens": [int], "seconds", "versions"}

`nll` is the mean negative log-likelihood per token of the text in nats; null for a text without tokens.
It runs on the CPU, in float32 unless told otherwise: judges are small, and float32 is the faster dtype on
CPUs without bfloat16 units.

This file runs in the stack's Python: it imports torch and transformers, and nothing of doesitrun.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers


def main(request_path: Path, answer_path: Path) -> None:
    """Reads the request and writes the answer, atomically. Whatever goes wrong is raised."""
    request = json.loads(request_path.read_text(encoding="utf-8"))
    if request.get("threads"):
        torch.set_num_threads(int(request["threads"]))
    with torch.inference_mode():
        answer = answer_to(request)
    part = answer_path.with_name(answer_path.name + ".part")
    part.write_text(json.dumps(answer, ensure_ascii=False), encoding="utf-8")
    part.replace(answer_path)


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """The judge's figures, as JSON values."""
    start = time.perf_counter()
    told = {"revision": request["revision"]} if request.get("revision") else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(request["model"], **told)
    dtype = getattr(torch, request.get("dtype", "float32"))
    model = transformers.AutoModelForCausalLM.from_pretrained(request["model"], dtype=dtype, use_safetensors=True, **told).eval()
    loaded = time.perf_counter()
    judged = [likelihood(model, tokenizer, item["prompt"], item["text"]) for item in request["texts"]]
    return {
        "nll": [nll for nll, _ in judged],
        "tokens": [tokens for _, tokens in judged],
        "seconds": {"load": round(loaded - start, 3), "judge": round(time.perf_counter() - loaded, 3)},
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version()},
    }


def likelihood(model: Any, tokenizer: Any, prompt: str, text: str) -> tuple[float | None, int]:
    """(mean nats per token of the text, its number of tokens).

    Prompt and text are tokenised together, as the judge would read them; the text begins where the ids
    leave those of the prompt alone. The first token of all has no prediction, so it never counts.
    """
    ids = tokenizer(prompt + text)["input_ids"]
    start = max(1, shared(tokenizer(prompt)["input_ids"], ids))
    if start >= len(ids):
        return None, 0
    batch = torch.tensor([ids])
    logits = model(input_ids=batch, use_cache=False).logits[0, start - 1 : -1].float()
    return torch.nn.functional.cross_entropy(logits, batch[0, start:]).item(), len(ids) - start


def shared(left: list[int], right: list[int]) -> int:
    """Length of the common beginning."""
    pairs = zip(left, right, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
