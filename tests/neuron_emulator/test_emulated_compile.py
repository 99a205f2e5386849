"""torch.compile(backend="neuron"): what is refused, the NEFF cache, the metrics, faults on demand."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

from tests.neuron_emulator.conftest import ONE_RANK, Child

SCALE = """
import json, torch
def scale(a): return (a @ a.t()).softmax(-1) * 2
f = torch.compile(scale, backend="neuron", fullgraph=True, dynamic=False)
x = torch.arange(16., device="neuron").view(4, 4) / 16
with torch.no_grad(): out = f(x)
"""
OTHER_FLAGS = """
import os
os.environ["NEURON_CC_FLAGS"] = "--optlevel 1"; torch._dynamo.reset()
with torch.no_grad(): f(x)
"""
REPORT = """
import dataclasses
print(json.dumps([dataclasses.asdict(entry) for entry in torch.neuron.get_dynamo_metrics()]))
"""

PREPARE = """
import os, torch
def scale(a): return (a @ a.t()).softmax(-1) * 2
def run(fault, **variables):
    os.environ.update(NEURON_EMU_FAULT=fault, **variables)
    torch._dynamo.reset()
    x = torch.arange(16., device="neuron").view(4, 4) / 16
    with torch.no_grad(): out = torch.compile(scale, backend="neuron", fullgraph=True, dynamic=False)(x)
    for name in variables: del os.environ[name]
    return out
"""


def graphs(child: Child, code: str) -> list[dict]:
    done = child(code + REPORT, NEURON_RT_VISIBLE_CORES="0")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def neffs(environment: dict[str, str]) -> list[Path]:
    folder = Path(environment["TORCH_NEURONX_NEFF_CACHE_DIR"])
    return [path for path in folder.rglob("*.neff") if '"kind": "graph"' in path.read_text()]


def test_a_graph_leaves_one_marked_file_that_the_next_process_reuses(child: Child, environment: dict[str, str]) -> None:
    (first,) = graphs(child, SCALE)
    (path,) = neffs(environment)
    name = path.relative_to(environment["TORCH_NEURONX_NEFF_CACHE_DIR"]).as_posix()
    assert re.fullmatch(r"([0-9a-f]{2})/([0-9a-f]{2})/\1\2[0-9a-f]{28}\.neff", name)
    assert path.read_text().startswith("EMULATED NEFF")
    second, other = graphs(child, SCALE + OTHER_FLAGS)
    assert (first["emulated_cache_hit"], second["emulated_cache_hit"], other["emulated_cache_hit"]) == (False, True, False)
    assert first["graph_id"] == second["graph_id"] != other["graph_id"]


def test_shapes_are_static_modes_ignored_and_what_the_device_lacks_refused(child: Child) -> None:
    done = child("""
import torch
one = torch.ones(3, 4, device="neuron")
def refused(words, work, *args, **kwargs):
    torch._dynamo.reset()
    try: torch.compile(work, backend="neuron", **kwargs)(*args)
    except Exception as error: assert words in str(error), error
    else: raise SystemExit("accepted: " + words)
refused("dynamic shapes are not supported", lambda a: a * 2, one, dynamic=True)
refused("non-contiguous", lambda a: a * 2, one.t())
refused("NCC_EVRF051", lambda a: a.to(torch.float8_e4m3fn).float(), one)
refused("SymInt", lambda a: a.nonzero(), one, fullgraph=True)
torch._dynamo.reset(); torch.neuron.reset_dynamo_metrics()
f = torch.compile(lambda a: a * 2, backend="neuron", mode="reduce-overhead", dynamic=False)
for rows in (3, 4, 5): f(torch.ones(rows, 4, device="neuron"))
assert len(torch.neuron.get_dynamo_metrics()) == 3
torch.neuron.reset_dynamo_metrics(); assert torch.neuron.get_dynamo_metrics() == []
""")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "mode 'reduce-overhead' is not supported and ignored" in done.stderr


def test_faults_that_are_asked_for(child: Child, environment: dict[str, str]) -> None:
    """Those that fail do it in the words of the real device; wrong numbers and silent fallbacks raise nothing."""
    done = child(
        PREPARE
        + """
for fault, words in (
    ("busy", "NeuronCore(s) not available - Requested:1"),
    ("compile_error", "Compilation failed for cache key"),
    ("compile_error:NCC_IBCG901", "return code 70: [INTERNAL_ERROR] [NCC_IBCG901]"),
    ("oom", "NRT allocation failed for size"),
    ("exec:1202", "NRT EXECUTION FAILED: nrt_execute status=1202"),
):
    try: run(fault)
    except Exception as error: assert words in str(error), error
    else: raise SystemExit(fault + " did not fail")
right = run("")
assert run("nan").isnan().all()
wrong = run("wrong"); assert not wrong.isnan().any() and not torch.allclose(wrong.cpu(), right.cpu())
assert torch.equal(run("nan", NEURON_EMU_FAULT_RANK="1"), right), "a fault of another rank"
torch.neuron.reset_dynamo_metrics()
assert torch.equal(run("compile_error", TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION="0"), right)
assert torch.neuron.get_dynamo_metrics() == []
import torch_neuronx
os.environ["NEURON_EMU_FAULT"] = "fallback"
right.argmax(-1); assert torch_neuronx.get_fallback_ops() == ["aten::argmax"]
""",
        NEURON_RT_VISIBLE_CORES="0",
        TORCH_NEURONX_NEFF_DISABLE_CACHE="1",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for words in ("[ERROR] [NCC_EVRF001]", "Neuron OOM: requested_size=", "Falling back to original GraphModule execution"):
        assert words in done.stderr
    assert "aten::argmax fell back to CPU" in done.stderr
    assert not Path(environment["TORCH_NEURONX_NEFF_CACHE_DIR"]).exists(), "the cache was disabled"


def test_a_rank_that_cannot_join_and_one_that_dies_after_its_work(child: Child) -> None:
    done = child(
        """
import os, torch, torch.distributed as dist
os.environ["NEURON_EMU_FAULT"] = "barrier"
dist.init_process_group(backend="neuron")
""",
        **ONE_RANK,
    )
    assert "Failed to execute the device barrier" in done.stderr
    code = "import torch.distributed as dist; dist.init_process_group(backend='neuron'); dist.destroy_process_group()"
    assert child(code, NEURON_EMU_FAULT="teardown", **ONE_RANK).returncode == -signal.SIGSEGV
