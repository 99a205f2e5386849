"""neuron: AWS Trainium2 through TorchNeuron, the native PyTorch backend; a core is a logical NeuronCore.

The facts are those of the AWS Neuron SDK 2.33 documentation, of TorchNeuron's public source and of
transformers 5.24; none was measured by us on a Trainium.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from doesitrun.records import Device, Plan
from doesitrun.targets import neuron_checks
from doesitrun.targets.checks import Checkup
from doesitrun.targets.graph_files import GraphFiles, neff_fault
from doesitrun.targets.neuron_questions import QUESTIONS
from doesitrun.targets.protocol import Detection, Fragments

NAME = "neuron"
COMPILER = "neuronx-cc"
_CORE_BYTES = 24 * 2**30
_CORES_PER_CHIP = 4  # logical cores, at the default of two physical ones each
# Compiled code, scratch space, rings and collective buffers live in the same 24 GiB bank as the weights;
# field notes advise to plan for about 60 % of it.
_HEADROOM = 0.4
_HARD_LAYERS = (
    ("windowed", "It has layers with a sliding window: with a static cache they may be compiled anew at every token."),
    ("recurrent", "It has recurrent or linear-attention layers, which neuronx-cc is known to fail on."),
)
DEVICES = {
    "trn2": Device(
        name="trn2",
        target="neuron",
        sizes=(1, 2, 4, 8, 16),
        core_bytes=_CORE_BYTES,
        headroom=_HEADROOM,
        description="trn2.48xlarge: 64 logical cores of 24 GiB; one model gets at most 16 (4 chips).",
        hard_layers=_HARD_LAYERS,
    ),
    "trn2.3xlarge": Device(
        name="trn2.3xlarge",
        target="neuron",
        sizes=(1, 2, 4),
        core_bytes=_CORE_BYTES,
        headroom=_HEADROOM,
        description="trn2.3xlarge: one chip, 4 logical cores of 24 GiB.",
        hard_layers=_HARD_LAYERS,
    ),
}
REQUIREMENTS = ("torch", "transformers", "accelerate", "torch-neuronx", "neuronx-cc", "nki")
RESOURCE = "neuron_cores"
VERSION_COLUMNS = {"torch_neuronx": "torch-neuronx", "neuronx_cc": "neuronx-cc", "nki": "nki"}
PIP_INDEXES: tuple[str, ...] = ("https://pip.repos.neuron.amazonaws.com", "https://download.pytorch.org/whl/cpu")
CHECKUP = Checkup(
    concerns=neuron_checks.concerns,
    checks=neuron_checks.checks,
    traps=neuron_checks.TRAPS,
    modules=neuron_checks.MODULES,
    look=neuron_checks.LOOK,
    programs=neuron_checks.PROGRAMS,
    questions=QUESTIONS,
    cores=neuron_checks.usable_cores,
)


GRAPHS = GraphFiles(
    copy_to="neff_cache",
    graph=("*.neff",),
    fault=neff_fault,
    locks=("*.lock", "local/locks/*"),
    left_out=("local/*", "*.lock", "*.tmp", "*.partial", "*.tmp.*"),
    flags=("NEURON_CC_FLAGS", "NEURON_COMPILER_OPT_LEVEL", "NEURON_LOGICAL_NC_CONFIG", "NEURON_PLATFORM_TARGET_OVERRIDE", "XLA_FLAGS"),
)


def environment(cache: str) -> dict[str, str]:
    """Variables of the child: compiled graphs go to `cache`, a folder of this compiler version alone.

    The cache's key does not hold the compiler version, so one folder must never serve two.
    """
    return {
        "TORCH_NEURONX_NEFF_CACHE_DIR": cache,
        "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": f"{cache}/local",  # locks; a default that all users share is a trap
        "TOKENIZERS_PARALLELISM": "false",
    }


def visible(cores: Sequence[int]) -> dict[str, str]:
    """Variables that show a child these cores, and no others; it would take all of the host's."""
    return {"NEURON_RT_VISIBLE_CORES": ",".join(map(str, cores))}


def detect(facts: Mapping[str, Any]) -> Detection | None:
    """The driver's device files are chips; a native torch-neuronx has the minor version of its torch."""
    found = facts["distributions"]
    if "torch-neuronx" not in found or "torch" not in found:
        return None
    emulated = "emulated" in found["torch-neuronx"]
    if not facts["device_files"] and not emulated:
        return None
    notes = []
    if found["torch"].split(".")[:2] != found["torch-neuronx"].split(".")[:2]:
        notes.append(f"torch {found['torch']} and torch-neuronx {found['torch-neuronx']} do not fit: their minor versions must be equal.")
    if "neuronx-cc" not in found:
        notes.append("neuronx-cc is not installed: pip install neuronx-cc.")
    if emulated:
        notes.append("The device is emulated on the CPU: nothing it says is a result for Trainium.")
    chips = len(facts["device_files"]) or 1
    device = "trn2.3xlarge" if chips == 1 else "trn2"
    compiler = found.get("neuronx-cc", "")
    return Detection(device, chips * _CORES_PER_CHIP, compiler, tuple(notes), machine=device.partition(".")[0])


def fragments(plan: Plan) -> Fragments:
    sharded = plan.cores > 1
    text = plan.task == "text-generation"
    return Fragments(
        backend="neuron",
        process_group="neuron",
        environment={
            "HF_DEACTIVATE_ASYNC_LOAD": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "TORCH_NEURONX_ATEN_GMM_ALIGN": "1",
            "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION": "1",
        },
        environment_extra=(_TOOLS, *(() if sharded else _ONE_CORE)),
        torch_imports=("import torch_neuronx",),
        rank_setup=('os.environ["NEURON_RT_VISIBLE_CORES"] = str(core_list()[rank])',),
        functions=_CORE_LIST if sharded else "",
        # device_map rather than .to(): it keeps tied embeddings tied.
        load_arguments=() if sharded else ('device_map="neuron",',),
        # One chunk as long as the prompt: the prefill is then compiled too, as one graph.
        generate_arguments=('prefill_chunk_size=inputs["input_ids"].shape[1],',) if text else (),
        run_setup=("torch._dynamo.config.automatic_dynamic_shapes = False",),
        synchronize=("torch.neuron.synchronize()",),
        reset_peak=("torch.neuron.reset_peak_memory_stats()",),
        experts_implementation="batched_mm" if plan.is_moe else None,
        peak_bytes="torch.neuron.max_memory_allocated()",
        # Dynamo counts a graph also where the backend gave up on it and ran it eagerly; the backend's own list does not.
        compiled="graphs > 0 and bool(torch.neuron.get_dynamo_metrics())",
        cache_folder='os.environ.get("TORCH_NEURONX_NEFF_CACHE_DIR", "/tmp/neff_cache")',
        cache_pattern="**/*.neff",
        # A graph's id is its key in the cache, and names its file there.
        cache_hits='sum(f"{graph.graph_id}.neff" in known for graph in torch.neuron.get_dynamo_metrics())',
        cache_misses='sum(f"{graph.graph_id}.neff" not in known for graph in torch.neuron.get_dynamo_metrics())',
        fallbacks="sorted(map(str, torch_neuronx.get_fallback_ops()))",
    )


# torch-neuronx starts neuronx-cc by its name.
_TOOLS = 'os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), "/opt/aws/neuron/bin", os.environ.get("PATH", "")])'
# A process takes every core of the host unless it is told which are its own.
_ONE_CORE = ('os.environ.setdefault("NEURON_RT_VISIBLE_CORES", "0")',)
_CORE_LIST = """

def core_list() -> list[int]:
    \"\"\"The cores of this run: those that NEURON_RT_VISIBLE_CORES names ("4-7" or "4,5,6,7"), or the first ones.\"\"\"
    named = os.environ.get("NEURON_RT_VISIBLE_CORES", f"0-{CORES - 1}")
    ends = [part.split("-") for part in named.split(",")]
    cores = [core for end in ends for core in range(int(end[0]), int(end[-1]) + 1)]
    if len(cores) < CORES:
        raise RuntimeError(f"NEURON_RT_VISIBLE_CORES={named} names {len(cores)} cores where {CORES} are needed")
    return cores
"""
