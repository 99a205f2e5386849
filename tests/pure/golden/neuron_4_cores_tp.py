# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "torch==2.13.0",
#     "transformers==5.24.0",
#     "accelerate==1.15.0",
#     "torch-neuronx==2.13.3.0.1",
#     "neuronx-cc==2.28.7631.0",
#     "nki==0.7.0",
# ]
# ///
"""One model, one plan: text-generation in bfloat16 on 4 cores (tensor parallel 4, expert parallel 1) of trn2 (neuron).

    python3 run.py                 prints the generated text and the figures
    python3 run.py --report DIR    also writes DIR/stage before each phase and DIR/result.json at the end

It generates 32 tokens greedily, twice: the first pass compiles, the second is warm.
"""

import argparse
import json
import os
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path

# Read when torch is imported, so they are set before it.
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TORCH_NEURONX_ATEN_GMM_ALIGN", "1")
os.environ.setdefault("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "1")
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), "/opt/aws/neuron/bin", os.environ.get("PATH", "")])

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch_neuronx
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, CompileConfig, DistributedConfig, GenerationConfig

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
REVISION = "0123456789abcdef0123456789abcdef01234567"
PROMPT = "Once upon a time, in a small village by the sea, there lived an old fisherman who"
NEW_TOKENS = 32
CORES = 4
RANK_WEIGHTS_BYTES = 67257504  # planned weights of the fullest rank
TOP = 50  # logits kept per position


def core_list() -> list[int]:
    """The cores of this run: those that NEURON_RT_VISIBLE_CORES names ("4-7" or "4,5,6,7"), or the first ones."""
    named = os.environ.get("NEURON_RT_VISIBLE_CORES", f"0-{CORES - 1}")
    ends = [part.split("-") for part in named.split(",")]
    cores = [core for end in ends for core in range(int(end[0]), int(end[-1]) + 1)]
    if len(cores) < CORES:
        raise RuntimeError(f"NEURON_RT_VISIBLE_CORES={named} names {len(cores)} cores where {CORES} are needed")
    return cores


def enter(stage: str, report: Path | None) -> None:
    """Say which phase begins, so that a crash can be told apart from the outside."""
    if report is not None:
        (report / "stage").write_text(stage)


def load() -> tuple:
    processor = AutoTokenizer.from_pretrained(MODEL, revision=REVISION)
    model, info = AutoModelForCausalLM.from_pretrained(
        MODEL,
        revision=REVISION,
        dtype=torch.bfloat16,
        use_safetensors=True,
        output_loading_info=True,
        distributed_config=DistributedConfig(tp_size=4),
    )
    if info["missing_keys"]:
        raise RuntimeError("the checkpoint lacks tensors that the model needs: " + ", ".join(sorted(info["missing_keys"])))
    # Plain greedy decoding, whatever the checkpoint's own defaults (sampling, penalties) say.
    eos = model.generation_config.eos_token_id
    pad = model.generation_config.pad_token_id
    first_eos = eos[0] if isinstance(eos, list) else eos
    model.generation_config = GenerationConfig(eos_token_id=eos, pad_token_id=first_eos if pad is None else pad)
    return processor, model.eval()


def weights_bytes(model: torch.nn.Module) -> int:
    """Bytes of the weights that this rank holds; more than planned means that they were not sharded."""
    local = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    held = sum(p.numel() * p.element_size() for p in local)
    if held > 1.05 * RANK_WEIGHTS_BYTES:
        raise RuntimeError(f"the weights were not sharded as planned: this rank holds {held} bytes of {RANK_WEIGHTS_BYTES} planned")
    return held


def encode(tokenizer) -> dict:
    return dict(tokenizer(PROMPT, return_tensors="pt"))



def generate(model: torch.nn.Module, inputs: dict, **more) -> tuple[list[int], torch.Tensor, float]:
    """The new tokens, the raw logits of each of them [NEW_TOKENS, vocabulary], and seconds."""
    compile_config = CompileConfig(backend="neuron", mode="default", dynamic=False, fullgraph=True)
    start = time.perf_counter()
    with torch.no_grad():
        output = model.generate(
            **inputs,
            do_sample=False,
            min_new_tokens=NEW_TOKENS,
            max_new_tokens=NEW_TOKENS,
            cache_implementation="static",
            compile_config=compile_config,
            prefill_chunk_size=inputs["input_ids"].shape[1],
            return_dict_in_generate=True,
            output_logits=True,
            **more,
        )
    torch.neuron.synchronize()
    seconds = time.perf_counter() - start
    logits = torch.cat([step.float().cpu() for step in output.logits])
    return output.sequences[0, -NEW_TOKENS:].tolist(), logits, seconds


def best(logits: torch.Tensor) -> dict:
    """The highest raw logits of each position, and whose they are."""
    top = logits.topk(min(TOP, logits.shape[-1]))
    return {"top_ids": top.indices.tolist(), "top_logits": top.values.tolist()}


def run(report: Path | None) -> dict:
    """What this rank loaded, generated and measured."""
    torch._dynamo.config.automatic_dynamic_shapes = False
    enter("load", report)
    cache = Path(os.environ.get("TORCH_NEURONX_NEFF_CACHE_DIR", "/tmp/neff_cache"))
    known = {path.name for path in cache.glob("**/*.neff")}
    start = time.perf_counter()
    processor, model = load()
    held = weights_bytes(model)
    inputs = encode(processor)
    load_s = time.perf_counter() - start
    torch.neuron.reset_peak_memory_stats()
    enter("compile", report)
    tokens, logits, first_s = generate(model, inputs)
    enter("run", report)
    warm_tokens, _, second_s = generate(model, inputs)
    eos = model.generation_config.eos_token_id
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return {
        "prompt_ids": inputs["input_ids"][0].tolist(),
        "tokens": tokens,
        "warm_tokens": warm_tokens,
        "eos_ids": eos if isinstance(eos, list) else [] if eos is None else [eos],
        **best(logits),
        "text": processor.decode(tokens, skip_special_tokens=True),
        "load_s": load_s,
        "first_s": first_s,
        "second_s": second_s,
        "compiled": graphs > 0 and bool(torch.neuron.get_dynamo_metrics()),
        "graphs": graphs,
        "graph_hits": sum(f"{graph.graph_id}.neff" in known for graph in torch.neuron.get_dynamo_metrics()),
        "graph_misses": sum(f"{graph.graph_id}.neff" not in known for graph in torch.neuron.get_dynamo_metrics()),
        "graph_entries": [len(known), sum(1 for _ in cache.glob("**/*.neff"))],
        "peak_bytes": torch.neuron.max_memory_allocated(),
        "weights_bytes": held,
        "missing_keys": [],
        "fallbacks": sorted(map(str, torch_neuronx.get_fallback_ops())),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "python": sys.version.split()[0]},
    }


def rank_main(rank: int, port: int, report: Path | None, parts: Path) -> None:
    """One rank: its process group first, then the model; what it found goes to a file of its own."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(CORES), LOCAL_WORLD_SIZE=str(CORES))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ["NEURON_RT_VISIBLE_CORES"] = str(core_list()[rank])
    try:
        dist.init_process_group(backend="neuron")
        result = run(report if rank == 0 else None)
    except Exception:
        # Said at once: the parent passes on the rank whose end it sees first, and that may be a victim of this one.
        sys.stderr.write("".join(f"[rank{rank}]: {line}\n" for line in traceback.format_exc().splitlines()))
        raise
    write_json(parts / f"{rank}.json", result)
    dist.barrier()
    dist.destroy_process_group()


def run_all(report: Path | None) -> dict:
    """The result of rank 0, with the figures of all ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(dir=report) as folder:
        parts = [Path(folder) / f"{rank}.json" for rank in range(CORES)]
        try:
            mp.spawn(rank_main, args=(port, report, Path(folder)), nprocs=CORES)
        except mp.ProcessExitedException:
            # A runtime may crash while it is torn down; once every rank has written its file, that is noise.
            if not all(part.exists() for part in parts):
                raise
        results = [json.loads(part.read_text()) for part in parts]
    keys = ("tokens", "peak_bytes", "weights_bytes", "graphs", "graph_hits", "graph_misses")
    result = results[0]
    result["ranks"] = [{"rank": rank} | {key: each[key] for key in keys} for rank, each in enumerate(results)]
    return result


def write_json(path: Path, value: dict) -> None:
    """Whole or not at all: the file is there only once it is complete."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    os.replace(partial, path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one model as planned.")
    parser.add_argument("--report", type=Path, help="folder for the files stage and result.json")
    report = parser.parse_args().report
    sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character is no failure of the model
    if report is not None:
        report.mkdir(parents=True, exist_ok=True)
    result = run_all(report)
    print(PROMPT + " ->" + result["text"])
    print("tokens:", *result["tokens"])
    print(
        f"load {result['load_s']:.1f} s, first pass {result['first_s']:.1f} s, second pass {result['second_s']:.1f} s, "
        f"{result['graphs']} graphs, {result['graph_hits']} cached, peak {max(r['peak_bytes'] for r in result['ranks']) / 1e9:.2f} GB on the fullest of {CORES} ranks"
    )
    if report is not None:
        write_json(report / "result.json", result)
        enter("exit", report)


if __name__ == "__main__":
    main()
