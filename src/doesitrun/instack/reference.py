"""The CPU reference: the same prefix through the checkpoint in float32 and in low precision.

    python reference.py REQUEST.json ANSWER.json

One teacher-forced forward over the prompt and the device's own tokens gives the logits of every step at
once, where generating would take one forward per token. It is done twice, with the **same weights**: the
checkpoint is loaded in the device's dtype, run, and then its parameters are widened to float32 (which is
exact) and run again. So both runs hold bit-equal weights, and what separates them is rounding inside the
arithmetic alone: the yardstick that the device, which holds those weights too, is measured with. Loading
the float32 run from a float32 checkpoint instead would mix in the rounding of the weights, and a device
that lost half its precision could hide behind it.

`model.float()` leaves alone what is float32 already: rotary frequencies, which transformers keeps in
float32 in every dtype, and the modules that a class lists in `_keep_in_fp32_modules`. Going the other way
(`model.to(bfloat16)`) would round those, which no right run does; so for a float32 plan, whose yardstick
is bfloat16, the checkpoint is loaded a second time.

A mixture of experts needs more. Its routers choose between near ties, so rounding alone can pick another
expert, after which the logits of that position are far off; and a single low-precision run does so at few
positions only. So it is run in low precision three times, twice with every linear layer's output shaken by
one unit in its last place, to stand for other right devices. The answer tells which experts each position
visits in all of these runs, for faults of a rarely visited expert to be looked for where it is visited.

This file runs in the stack's Python: it imports torch and transformers, and nothing of doesitrun.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import math
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

WIDE = torch.float32
SHAKES = 2
"""Shaken runs of a mixture of experts."""


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
    """The reference's figures, as JSON values."""
    clock = Clock()
    low = low_dtype(request["dtype"])
    model, info = load(request, getattr(torch, request["dtype"]))
    clock.lap("load")
    processor = load_processor(request)
    texts = texts_of(request, processor, low)
    clock.lap("encode")
    if request["dtype"] == "float32":
        wide = [read(model, text) for text in texts]
        passage = passage_loss(model, processor, request["passage"])
        clock.lap("fp32")
        digests = two_loads(model, request, info, passage["passage_loss"], wide[0].logits.shape[-1])
        model, _ = load(request, low)
        narrow, shaken = in_low_precision(model, texts)
        clock.lap("low")
    else:
        narrow, shaken = in_low_precision(model, texts)
        clock.lap("low")
        model.float()
        wide = [read(model, text) for text in texts]
        passage = passage_loss(model, processor, request["passage"])
        clock.lap("fp32")
        digests = two_loads(model, request, info, passage["passage_loss"], wide[0].logits.shape[-1])
    own, *others = [figures_of(*runs, request["eos_ids"]) for runs in zip(texts, wide, narrow, shaken, strict=True)]
    probes = len(others) - len(request.get("probes", ()))
    return {
        **loading(info),
        **passage,
        **own,
        "passages": others[:probes],
        "probes": others[probes:],
        "weights_digests": digests,
        "experts": [module.num_experts for module in experts(model)],
        "vocab_size": wide[0].logits.shape[-1],
        "low_dtype": str(low).removeprefix("torch."),
        "prompt_ids": texts[0].prompt_ids,
        "seconds": clock.seconds,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version()},
    }


@dataclass(frozen=True)
class Text:
    """What the device read: inputs whose last `steps` positions gave the logits of `top_ids`."""

    prompt_ids: list[int]
    inputs: dict[str, Any]
    steps: int
    top_ids: list[list[int]]


@dataclass(frozen=True)
class Reading:
    """What a run made of a text: logits [steps, vocabulary], and the experts chosen [layers of experts, steps, chosen]."""

    logits: Any
    chosen: list[Any]


def texts_of(request: dict[str, Any], processor: Any, dtype: Any) -> list[Text]:
    """The prompt with the device's tokens, then the passages that it was given, then the sequences of the probes, each alone."""
    prompt = encode(processor, request["prompt"], request.get("picture"))
    texts = [text_of(prompt, request["tokens"], request["top_ids"], dtype)]
    for passage in request.get("passages", ()):
        ids = torch.tensor([passage["prompt_ids"]], dtype=torch.long)
        # With a picture, a passage follows the prompt; else it has as many ids of its own.
        given = {**prompt, "input_ids": ids} if request.get("picture") else {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        texts.append(text_of(given, passage["tokens"], passage["top_ids"], dtype))
    for probe in request.get("probes", ()):
        ids = torch.tensor([probe["prompt_ids"]], dtype=torch.long)
        texts.append(text_of({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, probe["tokens"], probe["top_ids"], dtype))
    return texts


def text_of(inputs: dict[str, Any], tokens: list[int], top_ids: list[list[int]], dtype: Any) -> Text:
    return Text(inputs["input_ids"][0].tolist(), rounded(with_tokens(inputs, tokens), dtype), len(tokens), top_ids)


def figures_of(text: Text, wide: Reading, narrow: Reading, shaken: list[Reading], eos_ids: list[int]) -> dict[str, Any]:
    """The logits of the device's best ids in all runs, the CPU's own choices, and the experts that each position visits in all runs."""
    return {
        "fp32": picked(wide.logits, text.top_ids),
        "low": picked(narrow.logits, text.top_ids),
        "shaken": [picked(each.logits, text.top_ids) for each in shaken],
        "visits": agreed([wide, narrow, *shaken]),
        "fp32_argmax": best(wide.logits, eos_ids),
        "low_argmax": best(narrow.logits, eos_ids),
    }


class Clock:
    """Seconds between laps, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = round(now - self.last, 3)
        self.last = now


def low_dtype(dtype: str) -> Any:
    """The dtype of the yardstick: the device's own; for a float32 device bfloat16, as float32 has no lower one of its own."""
    return torch.bfloat16 if dtype == "float32" else getattr(torch, dtype)


# ---------------------------------------------------------------------------------- the checkpoint
def source(request: dict[str, Any]) -> dict[str, Any]:
    """What every from_pretrained is told: where from, and whether the repository's own code may run."""
    told = {"pretrained_model_name_or_path": request["model"], "trust_remote_code": bool(request.get("trust_remote_code"))}
    return told | ({"revision": request["revision"]} if request.get("revision") else {})


def load(request: dict[str, Any], dtype: Any) -> tuple[Any, dict[str, Any]]:
    """The model in `dtype`, and what from_pretrained says of its keys. Pickles are refused.

    The attention implementation is left to the class: sdpa where it supports it, else eager.
    """
    model, info = getattr(transformers, request["auto_class"]).from_pretrained(
        **source(request),
        dtype=dtype,
        use_safetensors=True,
        output_loading_info=True,
        # Wrong shapes shall be named in the answer rather than raised one at a time.
        ignore_mismatched_sizes=True,
    )
    return model.eval(), info


def load_processor(request: dict[str, Any]) -> Any:
    return getattr(transformers, request["processor_class"]).from_pretrained(**source(request))


def loading(info: dict[str, Any]) -> dict[str, list[str]]:
    """Names of tensors that the model needs and lacks, has no use for, or has in another shape. Tied ones are not missing."""
    mismatched = [name if isinstance(name, str) else name[0] for name in info["mismatched_keys"]]
    return {
        "missing_keys": sorted(info["missing_keys"]),
        "unexpected_keys": sorted(info["unexpected_keys"]),
        "mismatched_keys": sorted(mismatched),
    }


def two_loads(model: Any, request: dict[str, Any], info: dict[str, Any], loss: float | None, vocabulary: int) -> list[str]:
    """Digests of the weights of two loads, where something is suspicious; else none, for a second load costs as much as the first.

    Weights that the checkpoint does not hold are drawn at random. transformers' own classes name those as missing;
    a repository's own code may not, and then the second load, or the loss, gives it away. `model` is in float32.
    """
    limit = request.get("suspicious_loss", 1.0) * math.log(max(vocabulary, 2))
    is_high = loss is None or not loss <= limit
    if not (request.get("trust_remote_code") or is_high or info["missing_keys"] or info["mismatched_keys"]):
        return []
    first = weights_digest(model)
    other, _ = load(request, getattr(torch, request["dtype"]))
    return [first, weights_digest(other.float())]


def weights_digest(model: Any) -> str:
    """sha256 of all parameters as float32, by name."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(weight.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


# ---------------------------------------------------------------------------------- inputs
def encode(processor: Any, prompt: str, picture: str | None) -> dict[str, Any]:
    """The prompt as a batch of one, as run.py makes it; one with a picture goes through the chat template, if there is one."""
    if picture is None:
        batch = processor(prompt, return_tensors="pt")
        return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    from PIL import Image

    image = Image.open(picture).convert("RGB")
    if not processor.chat_template:
        batch = processor(images=image, text=prompt, return_tensors="pt")
        return {name: tensor for name, tensor in batch.items() if name != "labels"}  # which training needs
    content = [{"type": "image", "image": image}, {"type": "text", "text": prompt}]
    chat = [{"role": "user", "content": content}]
    return dict(processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"))


def with_tokens(inputs: dict[str, Any], tokens: list[int]) -> dict[str, Any]:
    """The inputs with all tokens but the last appended: the last one is an output only.

    What is shaped like the ids grows along: the attention mask with ones, and the kinds of tokens
    (`token_type_ids`, `mm_token_type_ids`) with zeros, which mean text.
    """
    more = torch.tensor([tokens[:-1]], dtype=torch.long)
    tails = {"input_ids": more, "attention_mask": torch.ones_like(more)}
    shape = inputs["input_ids"].shape
    return {
        name: torch.cat([tensor, tails.get(name, torch.zeros_like(more)).to(tensor.dtype)], dim=1) if tensor.shape == shape else tensor
        for name, tensor in inputs.items()
    }


def rounded(inputs: dict[str, Any], dtype: Any) -> dict[str, Any]:
    """The inputs with pixels rounded to `dtype`, as the device gets them, so that both runs see the same picture."""
    return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}


# ---------------------------------------------------------------------------------- logits
def read(model: Any, text: Text) -> Reading:
    """What the model makes of the text's last positions."""
    chosen: list[Any] = []

    def listen(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        # (hidden states, the chosen experts, their weights); the second has two names among the classes.
        index: Any = given[1] if len(given) > 1 else named.get("top_k_index", named.get("router_indices"))
        chosen.append(index.reshape(-1, index.shape[-1])[-text.steps :].clone())

    hooks = [module.register_forward_pre_hook(listen, with_kwargs=True) for module in experts(model)]
    try:
        return Reading(step_logits(model, text.inputs, text.steps), chosen)
    finally:
        for hook in hooks:
            hook.remove()


def in_low_precision(model: Any, texts: list[Text]) -> tuple[list[Reading], list[list[Reading]]]:
    """What the model makes of each text as it is, and shaken; a model without experts is not shaken."""
    narrow = [read(model, text) for text in texts]
    shaken: list[list[Reading]] = [[] for _ in texts]
    for seed in range(SHAKES if experts(model) else 0):
        with shaking(model, seed):
            for readings, text in zip(shaken, texts, strict=True):
                readings.append(read(model, text))
    return narrow, shaken


def experts(model: Any) -> list[Any]:
    """The modules that hold a layer's experts, in order; transformers marks them all in the same way."""
    return [module for module in model.modules() if hasattr(module, "_is_expert_parallel")]


@contextlib.contextmanager
def shaking(model: Any, seed: int) -> Iterator[None]:
    """Every linear layer's output off by up to one unit of roundoff, as another device's right arithmetic may be."""
    generator = torch.Generator().manual_seed(seed)

    def shake(_: Any, __: Any, output: Any) -> Any:
        noise = 2 * torch.rand(output.shape, generator=generator) - 1
        return (output.to(WIDE) * (1 + noise * torch.finfo(output.dtype).eps / 2)).to(output.dtype)

    hooks = [module.register_forward_hook(shake) for module in model.modules() if isinstance(module, torch.nn.Linear)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def agreed(readings: list[Reading]) -> list[list[list[int]]]:
    """The experts that every run chose, by layer and position."""
    layers = zip(*(reading.chosen for reading in readings), strict=True)
    return [[common(runs) for runs in zip(*(each.tolist() for each in layer), strict=True)] for layer in layers]


def common(runs: tuple[list[int], ...]) -> list[int]:
    """What is in all of the lists."""
    return sorted(set(runs[0]).intersection(*runs[1:]))


def step_logits(model: Any, inputs: dict[str, Any], steps: int) -> Any:
    """Raw logits of the last `steps` positions in float32, shaped (steps, vocabulary)."""
    given = rounded(inputs, model.dtype)
    # Logits of a long picture prompt would take gigabytes.
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        given["logits_to_keep"] = steps
    return model(**given, use_cache=False).logits[0, -steps:].to(WIDE)


def picked(logits: Any, ids: list[list[int]]) -> list[list[float]]:
    """The logits at the device's own best ids, per step."""
    return logits.gather(1, torch.tensor(ids, dtype=torch.long)).tolist()  # type: ignore[no-any-return]


def best(logits: Any, excluded: list[int]) -> list[int]:
    """The greedy choice per step where `excluded` may not be chosen, as `min_new_tokens` forbids the end of the text."""
    allowed = logits.clone()
    allowed[:, excluded] = -math.inf
    return allowed.argmax(dim=1).tolist()  # type: ignore[no-any-return]


def passage_loss(model: Any, processor: Any, passage: str) -> dict[str, Any]:
    """Mean negative log-likelihood per token of the passage, in nats; 0 tokens when there is no passage."""
    tokenizer = getattr(processor, "tokenizer", processor)
    ids = tokenizer(passage, return_tensors="pt")["input_ids"]
    if ids.shape[1] < 2:
        return {"passage_loss": None, "passage_tokens": 0}
    logits = model(input_ids=ids, use_cache=False).logits[0, :-1].to(WIDE)
    loss = torch.nn.functional.cross_entropy(logits, ids[0, 1:])
    return {"passage_loss": loss.item(), "passage_tokens": ids.shape[1] - 1}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
