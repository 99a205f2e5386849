"""The emulated device itself: names, cores, indices, memory, operators. Each test is one child process."""

from __future__ import annotations

from tests.neuron_emulator.conftest import HERE, Child


def passes(done) -> None:
    assert done.returncode == 0, done.stderr[-3000:]


def test_nothing_about_it_can_be_taken_for_the_real_device(child: Child) -> None:
    passes(
        child("""
import importlib.metadata, torch, torch_neuronx, neuronxcc
for name in ("torch-neuronx", "neuronx-cc", "nki"):
    assert importlib.metadata.version(name).endswith("+emulated"), name
assert torch_neuronx.__version__.endswith("+emulated") and neuronxcc.__version__.endswith("+emulated")
assert "emulated" in torch.neuron.get_device_name() and "emulated" in torch.neuron.get_device_properties(0).name
assert torch.accelerator.current_accelerator().type == "neuron"
""")
    )


def test_the_import_takes_no_core_and_the_first_tensor_takes_the_visible_ones(child: Child) -> None:
    passes(
        child(
            """
import torch
assert torch.neuron.is_available() and torch.neuron.device_count() == 3 and not torch.neuron.is_initialized()
assert torch.ones(1, device="neuron:2").device.index == 2 and torch.neuron.is_initialized()
for use in (lambda: torch.ones(1, device="neuron:3"), lambda: torch.neuron.set_device(3)):
    try: use()
    except RuntimeError as error: assert "Device index 3 is out of range" in str(error), error
    else: raise SystemExit("index 3 was accepted")
""",
            NEURON_RT_VISIBLE_CORES="0,2-3",
        )
    )


def test_without_variables_a_process_takes_every_core_and_leaves_none_to_others(child: Child) -> None:
    passes(
        child("""
import subprocess, sys, torch
assert torch.neuron.device_count() == 4
torch.ones(1, device="neuron")
code = "import torch; torch.ones(1, device='neuron')"
import os
other = subprocess.run([sys.executable, "-c", code], env={**os.environ, "NEURON_RT_VISIBLE_CORES": "1"}, capture_output=True, text=True)
assert other.returncode == 1 and "NeuronCore(s) not available - Requested:1" in other.stderr, other.stderr
""")
    )


def test_cores_that_the_machine_lacks_or_that_cannot_be_read_are_refused(child: Child) -> None:
    passes(
        child("""
import os, torch
for cores, words in (("4", "NeuronCore(s) not available"), ("all", "Failed to parse NEURON_RT_VISIBLE_CORES"), ("3-1", "runs backwards")):
    os.environ["NEURON_RT_VISIBLE_CORES"] = cores
    try: torch.neuron.init()
    except RuntimeError as error: assert words in str(error), error
    else: raise SystemExit(cores + " was accepted")
os.environ["NEURON_RT_VISIBLE_CORES"] = "3"; torch.neuron.init(); assert torch.neuron.device_count() == 1
""")
    )


def test_a_fork_made_after_the_start_cannot_use_the_device_and_one_made_before_can(child: Child) -> None:
    passes(
        child(
            """
import os, torch
def in_fork(work):
    pid = os.fork()
    if not pid: os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def use():
    try: torch.ones(1, device="neuron")
    except RuntimeError as error: return 7 if "'spawn' start method" in str(error) else 1
    return 0
assert in_fork(use) == 0
assert use() == 0
assert in_fork(use) == 7
""",
            NEURON_RT_VISIBLE_CORES="0",
        )
    )


def test_bytes_are_counted_and_a_full_core_refuses_more(child: Child) -> None:
    done = child(
        """
import torch
n = torch.neuron
n.init(); n.reset_peak_memory_stats()
assert n.get_device_properties(0).total_memory == 2**20 and n.mem_get_info()[1] == 2**20
whole = torch.empty(2**19, dtype=torch.uint8, device="neuron"); part = whole[5:]
del whole; n.synchronize(); assert n.memory_allocated() == 2**19
del part; n.synchronize(); assert n.memory_allocated() == 0 and n.max_memory_allocated() == 2**19
try: torch.empty(2**21, dtype=torch.uint8, device="neuron")
except RuntimeError as error: assert "NRT allocation failed for size 2097152 (OOM)" in str(error), error
else: raise SystemExit("2 MiB fitted into 1 MiB")
assert n.memory_allocated() == 0
""",
        NEURON_EMU_CORE_GB=str(2**-10),
    )
    passes(done)
    assert "Neuron OOM: requested_size=2097152" in done.stderr


def test_operators_give_what_the_cpu_gives_and_devices_do_not_mix(child: Child) -> None:
    passes(child(HERE / "programs" / "operators.py"))


def test_eager_operators_are_listed_and_each_shape_leaves_a_neff(child: Child) -> None:
    done = child("""
import os, pathlib, torch, torch_neuronx
files = lambda: sorted(pathlib.Path(os.environ["TORCH_NEURONX_NEFF_CACHE_DIR"]).rglob("*.neff"))
x = torch.ones(4, device="neuron"); before = len(files())
x + x; x + x; x.view(2, 2)
assert len(files()) == before + 1, files()
y = torch.ones(5, device="neuron"); before = len(files()); y + y; assert len(files()) == before + 1
assert "aten::add" in torch_neuronx.get_executed_ops() and torch_neuronx.get_fallback_ops() == []
torch.multinomial(y, 1); assert torch_neuronx.get_fallback_ops() == ["aten::multinomial"]
torch_neuronx.clear_op_tracking(); assert torch_neuronx.get_executed_ops() == torch_neuronx.get_fallback_ops() == []
""")
    passes(done)


def test_groups_of_experts_must_be_aligned_unless_the_alignment_is_one(child: Child) -> None:
    code = """
import os, torch
a, b = torch.ones(6, 8, device="neuron", dtype=torch.bfloat16), torch.ones(2, 8, 8, device="neuron", dtype=torch.bfloat16)
offsets = torch.tensor([3, 6], device="neuron", dtype=torch.int32)
try: torch._grouped_mm(a, b, offs=offsets)
except RuntimeError as error: assert "offs must be divisible by 128" in str(error), error
else: raise SystemExit("groups of 3 were accepted")
os.environ["TORCH_NEURONX_ATEN_GMM_ALIGN"] = "1"
assert torch._grouped_mm(a, b, offs=offsets).shape == (6, 8)
"""
    passes(child(code))
