"""Small real runs, one task a process, that settle what documents leave open about a device.

    python examine.py REQUEST.json ANSWER.json

The request names a `task` of TASKS, the `cores` that it may use, and the task's own keys; the answer holds what was
observed, and no judgement. torch is imported late: some tasks change what it finds at its import.

This file runs in the stack's Python: it imports torch and transformers, and nothing of doesitrun.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import shutil
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": 128,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS: dict[str, dict[str, int]] = {
    "llama": SIZES,
    "one_kv_head": SIZES | {"num_key_value_heads": 1},
    "qwen3_moe": SIZES | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
}
PROMPT_TOKENS, NEW_TOKENS = 16, 16
BLOCK_BYTES = 256 * 2**20
RANK_S = 600.0
Request = dict[str, Any]
Answer = dict[str, Any]


# ---------------------------------------------------------------------------------- what is there
def names(request: Request) -> Answer:
    """Which of the dotted names exist, and which of the Dynamo backends."""
    import torch

    importlib.import_module("torch_neuronx")
    absent = [name for name in request["names"] if not _exists(name)]
    device = str(torch.neuron.get_device_name(0)) if _exists("torch.neuron.get_device_name") else ""
    return {"absent": absent, "backends": torch.compiler.list_backends(exclude_tags=()), "device": device}


def _exists(path: str) -> bool:
    first, *rest = path.split(".")
    value: Any = sys.modules.get(first)
    for name in rest:
        value = getattr(value, name, None)
    return value is not None


def package_words(request: Request) -> Answer:
    """Words of a package's files, Python or binary, that match a pattern."""
    found: dict[str, list[str]] = {}
    package = importlib.metadata.distribution(request["distribution"])
    paths = [Path(str(file.locate())) for file in package.files or ()]
    if not paths:  # no RECORD: the folder of the module itself
        module = importlib.import_module(request["distribution"].replace("-", "_"))
        paths = [path for path in Path(str(module.__file__)).parent.rglob("*") if path.is_file()]
    pattern = re.compile(request["pattern"].encode(), re.IGNORECASE)
    for path in (path for path in paths if path.suffix in (".py", ".so", ".md") and path.is_file()):
        for word in {match.decode("ascii", "replace") for match in pattern.findall(path.read_bytes())}:
            found.setdefault(word, []).append(path.name)
    return {"files": len(paths), "words": {word: sorted(set(files))[:5] for word, files in sorted(found.items())[:50]}}


# ---------------------------------------------------------------------------------- compiling
def compile_small(request: Request) -> Answer:
    """A small function compiled for a device: seconds, and its distance from float32 beside that of bfloat16 on the CPU."""
    import torch

    x, w = torch.linspace(-1, 1, 64 * 64).view(64, 64), torch.linspace(-2, 2, 64 * 64).view(64, 64).t().contiguous()
    exact = _small(x, w)
    rounding = (_small(x.bfloat16(), w.bfloat16()).float() - exact).abs().max().item()
    compiled = torch.compile(_small, backend=request["backend"], fullgraph=True, dynamic=False)
    inputs = [tensor.bfloat16().to(request["device"]) for tensor in (x, w)]
    seconds, out = [], exact
    with torch.no_grad():
        for _ in range(2):
            start = time.perf_counter()
            out = compiled(*inputs).float().cpu()  # the copy waits for the device
            seconds.append(time.perf_counter() - start)
    error = (out - exact).abs().max().item()
    return {"first_s": seconds[0], "second_s": seconds[1], "error": error, "rounding": rounding}


def _small(x: Any, w: Any) -> Any:
    return (x @ w).softmax(-1) @ w.t()


def cache_files(request: Request) -> Answer:
    """Compiled graphs that one process adds to the cache, with the compiler's version as it is or pretended to be."""
    folder = Path(os.environ["TORCH_NEURONX_NEFF_CACHE_DIR"])
    before = _neffs(folder)
    if "pretended_version" in request:
        _pretend(request["pretended_version"])
    compile_small(request)
    return {"before": len(before), "new": len(_neffs(folder) - before)}


def _neffs(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*.neff")}


def _pretend(version: str) -> None:
    """Lets neuronx-cc say another version of itself, in all the ways that one can be asked for."""
    true_version = importlib.metadata.version

    def told(name: str) -> str:
        return version if name.replace("_", "-") == "neuronx-cc" else true_version(name)

    setattr(importlib.metadata, "version", told)  # noqa: B010  an assignment is what mypy refuses
    setattr(importlib.import_module("neuronxcc"), "__version__", version)  # noqa: B010  likewise
    compiler = shutil.which("neuronx-cc")
    if compiler is None:
        return
    wrapper = Path("bin").resolve() / "neuronx-cc"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(f'#!/bin/sh\ncase " $* " in *" --version "*) echo "{version}" ;; *) exec "{compiler}" "$@" ;; esac\n')
    wrapper.chmod(0o755)
    os.environ["PATH"] = f"{wrapper.parent}:{os.environ['PATH']}"


def grouped_mm(request: Request) -> Answer:
    """Two experts with three tokens each, which no alignment but 1 divides, beside the CPU's result."""
    import torch

    a, b = torch.linspace(-1, 1, 6 * 8).view(6, 8).bfloat16(), torch.linspace(-1, 1, 2 * 8 * 8).view(2, 8, 8).bfloat16()
    ends = torch.tensor([3, 6], dtype=torch.int32)
    expected = torch.cat([a[:3] @ b[0], a[3:] @ b[1]]).float()

    def work(a: Any, b: Any, ends: Any) -> Any:
        return torch._grouped_mm(a, b, offs=ends)  # noqa: SLF001  transformers calls it, too

    call = torch.compile(work, backend="neuron", fullgraph=True, dynamic=False) if request["compiled"] else work
    try:
        with torch.no_grad():
            got = call(*(tensor.to("neuron") for tensor in (a, b, ends))).float().cpu()
    except Exception as error:  # noqa: BLE001 its refusal is what is asked for
        return {"refused": _last_line(error)}
    return {"refused": "", "off_by": (got - expected).abs().max().item(), "largest": expected.abs().max().item()}


# ---------------------------------------------------------------------------------- models
def _checkpoint(name: str) -> str:
    """A small random checkpoint, made anew; its weights are large, so that its best token leads by much."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(56)
    config = AutoConfig.for_model("qwen3_moe" if name == "qwen3_moe" else "llama", **MODELS[name])
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.2)
    model.save_pretrained(name)
    return name


def _load(name: str, **arguments: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    experts = "batched_mm" if name == "qwen3_moe" else None
    return AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, experts_implementation=experts, **arguments).eval()


def _tokens(model: Any, *, compiled: bool) -> list[int]:
    import torch
    from transformers import CompileConfig

    prompt = torch.arange(3, 3 + PROMPT_TOKENS)[None]
    arguments: dict[str, Any] = {}
    if compiled:
        config = CompileConfig(backend="neuron", mode="default", dynamic=False, fullgraph=True)
        arguments = {"cache_implementation": "static", "compile_config": config, "prefill_chunk_size": PROMPT_TOKENS}
    with torch.no_grad():
        out = model.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            min_new_tokens=NEW_TOKENS,
            max_new_tokens=NEW_TOKENS,
            **arguments,
        )
    tokens: list[int] = out[0, PROMPT_TOKENS:].tolist()
    return tokens


def load(request: Request) -> Answer:
    """Seconds of loading a checkpoint onto the device, as the environment says: with threads or without."""
    name = _checkpoint(request["model"])
    start = time.perf_counter()
    model = _load(name, device_map="neuron")
    devices = {str(parameter.device.type) for parameter in model.parameters()}
    return {"seconds": time.perf_counter() - start, "devices": sorted(devices)}


def generate(request: Request) -> Answer:
    """A model generates on one core, twice, in one graph per phase: tokens beside the CPU's, graphs, seconds."""
    name = _checkpoint(request["model"])
    expected = _tokens(_load(name), compiled=False)
    return {"expected": expected, **_on_device(_load(name, device_map="neuron"))}


def _on_device(model: Any) -> Answer:
    import torch

    passes, seconds = [], []
    for _ in range(2):
        start = time.perf_counter()
        passes.append(_tokens(model, compiled=True))
        seconds.append(time.perf_counter() - start)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]  # noqa: SLF001  torch has no other count
    return {"tokens": passes[0], "warm_tokens": passes[1], "graphs": graphs, "first_s": seconds[0], "second_s": seconds[1]}


# ---------------------------------------------------------------------------------- memory
def fill(_: Request) -> Answer:
    """Bytes that one core holds before it refuses more."""
    import torch

    total = int(torch.neuron.get_device_properties(0).total_memory)
    blocks: list[Any] = []
    refused = ""
    while not refused and len(blocks) * BLOCK_BYTES <= 2 * total:
        try:
            blocks.append(torch.zeros(BLOCK_BYTES, dtype=torch.uint8, device="neuron"))
            torch.neuron.synchronize()
        except Exception as error:  # noqa: BLE001 the refusal is what is asked for
            refused = _last_line(error)
    return {
        "total_bytes": total,
        "held_bytes": len(blocks) * BLOCK_BYTES,
        "counted_bytes": torch.neuron.max_memory_allocated(),
        "refused": refused,
    }


def hold(request: Request) -> Answer:
    """Holds one block for some seconds while a monitor looks on; the peak as torch counts it."""
    import torch

    torch.neuron.reset_peak_memory_stats()
    block = torch.zeros(BLOCK_BYTES, dtype=torch.uint8, device="neuron")
    torch.neuron.synchronize()
    time.sleep(request["seconds"])
    peak = torch.neuron.max_memory_allocated()
    del block
    return {"peak_bytes": peak, "block_bytes": BLOCK_BYTES}


# ---------------------------------------------------------------------------------- several ranks
def groups(request: Request) -> Answer:
    """Groups of ranks side by side, on the cores given: each sums up its ranks' numbers, and ends."""
    started = [_start(group, number, request.get("model")) for number, group in enumerate(request["groups"])]
    return {"groups": [_finish(*each) for each in started]}


def override(request: Request) -> Answer:
    """A model whose heads no group of ranks divides, its attention gathered after its projections."""
    name = _checkpoint(request["model"])
    expected = _tokens(_load(name), compiled=False)
    return {"expected": expected, **groups(request)}


def _start(cores: list[int], number: int, model: str | None) -> tuple[Any, Path, int]:
    import torch.multiprocessing as mp

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(f"group-{number}").resolve()
    folder.mkdir()
    return mp.spawn(_rank, args=(cores, port, folder, model), nprocs=len(cores), join=False), folder, len(cores)


def _finish(context: Any, folder: Path, size: int) -> Answer:
    deadline = time.monotonic() + RANK_S
    for process in context.processes:
        process.join(max(0.0, deadline - time.monotonic()))
    codes = [process.exitcode for process in context.processes]
    for process in context.processes:
        process.kill()
    files = [folder / f"{rank}.json" for rank in range(size)]
    ranks = [json.loads(file.read_text(encoding="utf-8")) if file.exists() else {} for file in files]
    return {"exit_codes": codes, "ranks": ranks}


def _rank(rank: int, cores: list[int], port: int, folder: Path, model: str | None) -> None:
    size = len(cores)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NEURON_RT_VISIBLE_CORES=str(cores[rank]))
    os.environ.update(TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION="1", HF_DEACTIVATE_ASYNC_LOAD="1")
    import torch
    import torch.distributed as dist

    try:
        dist.init_process_group(backend="neuron")
        total = torch.full((4,), float(rank + 1), dtype=torch.bfloat16).to(f"neuron:{rank}")
        dist.all_reduce(total)
        answer: Answer = {"sum": total.float().cpu()[0].item(), "expected_sum": size * (size + 1) / 2}
        answer |= _sharded(model, size) if model is not None else {}
    except Exception as error:
        (folder / f"{rank}.json").write_text(json.dumps({"error": _last_line(error)}), encoding="utf-8")
        sys.stderr.write("".join(f"[rank{rank}]: {line}\n" for line in traceback.format_exc().splitlines()))
        raise
    (folder / f"{rank}.json").write_text(json.dumps(answer), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _sharded(model: str, size: int) -> Answer:
    from transformers import DistributedConfig

    projections = {f"model.layers.*.self_attn.{name}_proj": "colwise_gather_output" for name in "qkv"}
    plan = projections | {"model.layers.*.self_attn.o_proj": "rowwise_split_input"}
    return _on_device(_load(model, distributed_config=DistributedConfig(tp_size=size, tp_plan=plan)))


# ---------------------------------------------------------------------------------- the door
def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or [''])[0][:300]}"


TASKS: dict[str, Callable[[Request], Answer]] = {
    task.__name__: task
    for task in (names, package_words, compile_small, cache_files, grouped_mm, load, generate, fill, hold, groups, override)
}

if __name__ == "__main__":
    answer_path = Path(sys.argv[2])
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = TASKS[asked["task"]](asked)
    partial = answer_path.with_suffix(".partial")
    partial.write_text(json.dumps(found), encoding="utf-8")
    partial.replace(answer_path)
