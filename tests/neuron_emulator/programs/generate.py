"""Tiny random models generate 32 tokens on the CPU and on emulated cores. Prints one JSON line per process and case.

usage: generate.py FOLDER. The processes are forks of this one, made before any of them uses a device, which is legal and
saves the imports; the generated run.py uses spawn.
"""

import json
import os
import socket
import sys
import time
import traceback
from pathlib import Path

os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"  # a thread pool does not survive a fork

import torch
from torch import distributed as dist
from transformers import AutoConfig, AutoModelForCausalLM, CompileConfig, DistributedConfig, logging

NEW_TOKENS = 32
PROMPT = torch.arange(3, 19)[None]
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
MODELS = {"llama": SIZES, "qwen3_moe": SIZES | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}}
# A router near a tie flips when a sharded sum rounds differently, so experts are compared in float32.
DTYPES = {"llama": torch.bfloat16, "qwen3_moe": torch.float32}
# (model, ranks, arguments of DistributedConfig)
SEEDS = {"llama": 25, "qwen3_moe": 0}  # those whose best token leads by most: sharded sums round differently
CASES = [
    ("llama", 1, {}),
    ("llama", 2, {"tp_size": 2}),
    ("llama", 4, {"tp_size": 4}),
    ("qwen3_moe", 2, {"tp_size": 2, "ep_size": 2}),
]


def make_model(name: str, folder: Path) -> None:
    torch.manual_seed(SEEDS[name])
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **MODELS[name]), dtype=DTYPES[name])
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.2)
    model.save_pretrained(folder)


def generate(model: torch.nn.Module, compiled: bool) -> list[int]:
    kwargs = {}
    if compiled:
        config = CompileConfig(backend="neuron", mode="default", dynamic=False, fullgraph=True)
        kwargs = {"cache_implementation": "static", "compile_config": config, "prefill_chunk_size": PROMPT.shape[1]}
    out = model.generate(input_ids=PROMPT, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False, **kwargs)
    return out[0, PROMPT.shape[1] :].tolist()


def on_cpu(name: str, folder: Path) -> dict:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[name], experts_implementation=experts(name)).eval()
    return {"model": name, "cores": 0, "tokens": generate(model, compiled=False)}


def experts(name: str) -> str | None:
    return "batched_mm" if name == "qwen3_moe" else None


def on_cores(name: str, folder: Path, ranks: int, distributed: dict) -> dict:
    started = time.monotonic()
    if ranks > 1:
        dist.init_process_group(backend="neuron")
        placed = {"distributed_config": DistributedConfig(**distributed)}
    else:
        placed = {"device_map": "neuron"}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[name], experts_implementation=experts(name), **placed).eval()
    torch.neuron.reset_peak_memory_stats()
    first = generate(model, compiled=True)
    graphs = len(torch.neuron.get_dynamo_metrics())
    second = generate(model, compiled=True)
    torch.neuron.synchronize()
    return {
        "model": name,
        "cores": ranks,
        "rank": int(os.environ.get("RANK", "0")),
        "tokens": first,
        "warm_tokens": second,
        "graphs": graphs,
        "new_graphs": len(torch.neuron.get_dynamo_metrics()) - graphs,
        "cached_graphs": sum(entry.emulated_cache_hit for entry in torch.neuron.get_dynamo_metrics()),
        "collectives": any(entry.has_collectives for entry in torch.neuron.get_dynamo_metrics()),
        "peak_bytes": torch.neuron.max_memory_allocated(),
        "seconds": round(time.monotonic() - started, 1),
    }


def fork(work, environment: dict[str, str]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.environ.update(environment)
        with torch.no_grad():
            line = json.dumps(work()) + "\n"
        os.write(1, line.encode())  # one write: processes share stdout
        status = 0
    except Exception:  # noqa: BLE001  # the parent goes on with the other processes
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def rank_environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    if ranks == 1:
        return {"NEURON_RT_VISIBLE_CORES": "0"}
    one = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1"}
    return {name: str(value) for name, value in (one | {"MASTER_PORT": port, "NEURON_RT_VISIBLE_CORES": rank}).items()}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait(children: list[int]) -> bool:
    states = [os.waitpid(child, 0)[1] for child in children]
    return not any(states)


def main() -> None:
    logging.set_verbosity_error()
    folder = Path(sys.argv[1])
    for name in MODELS:
        make_model(name, folder / name)
    torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))  # imports what every fork would import again
    good = wait([fork(lambda name=name: on_cpu(name, folder / name), {}) for name in MODELS])
    for name, ranks, distributed in CASES:
        port = free_port()
        work = lambda name=name, ranks=ranks, distributed=distributed: on_cores(name, folder / name, ranks, distributed)  # noqa: E731
        good &= wait([fork(work, rank_environment(rank, ranks, port)) for rank in range(ranks)])
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
