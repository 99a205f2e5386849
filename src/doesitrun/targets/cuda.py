"""cuda: Inductor and Triton on NVIDIA GPUs; a core is a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from doesitrun.records import Device, Plan
from doesitrun.targets.checks import Check, Checkup, Facts, Status, Trap, compiles
from doesitrun.targets.graph_files import CACHES_ON, GraphFiles, inductor_fault
from doesitrun.targets.protocol import Detection, Fragments

NAME = "cuda"
COMPILER = "inductor"
_GPUS = (
    # name, bytes that the driver reports as total, what it is
    ("h200", 150_754_820_096, "NVIDIA H200, 141 GB"),
    ("h100", 85_520_809_984, "NVIDIA H100, 80 GB"),
    ("a100", 85_094_825_984, "NVIDIA A100, 80 GB"),
    ("l40s", 47_576_711_168, "NVIDIA L40S, 48 GB"),
    ("a10g", 23_722_786_816, "NVIDIA A10G, 24 GB"),
    ("t4", 15_828_320_256, "NVIDIA T4, 16 GB"),
)
# Compute capability 8.9 and above has fp8: below it, transformers turns such weights into bfloat16.
_WITH_FP8 = ("h200", "h100", "l40s")
DEVICES = {
    name: Device(
        name=name,
        target="cuda",
        sizes=(1, 2, 4, 8),
        core_bytes=size,
        headroom=0.15,
        description=text,
        kept_quantization=("fp8",) if name in _WITH_FP8 else (),
    )
    for name, size, text in _GPUS
}
REQUIREMENTS = ("torch", "transformers", "accelerate")
RESOURCE = "GPU"
VERSION_COLUMNS: dict[str, str] = {}
PIP_INDEXES: tuple[str, ...] = ()


def checks(facts: Facts) -> tuple[Check, ...]:
    """What the driver and torch say of the GPUs."""
    gpus = facts.probe.get("gpus", [])
    driver = facts.probe.get("kernel_modules", {}).get("nvidia", "unknown")
    if gpus:
        device = Check("device", Status.OK, f"{len(gpus)} x {gpus[0]}, driver {driver}")
    else:
        device = Check(
            "device", Status.PROBLEM, "NVIDIA's driver shows no GPU", "Install the driver, or start the container with --gpus all."
        )
    return (device, _cuda_build(facts))


def _cuda_build(facts: Facts) -> Check:
    name = "CUDA in torch"
    if not facts.imported:
        return Check(name, Status.UNKNOWN, "the imports failed", "Mend them first.")
    version = facts.seen("torch.version.cuda")
    if version is None:
        return Check(name, Status.PROBLEM, "this torch is built without CUDA", "Install a CUDA build of the same version.")
    if facts.seen("torch.cuda.is_available()") is not True:
        advice = "Update the driver, or install a torch that is built for an older CUDA."
        return Check(name, Status.PROBLEM, f"torch is built with CUDA {version}, but cannot use the GPU", advice)
    return Check(name, Status.OK, f"CUDA {version}, {facts.seen('torch.cuda.device_count()')} GPUs")


CHECKUP = Checkup(
    concerns=lambda probe: bool(probe.get("gpus")),
    checks=checks,
    traps=(
        Trap(
            "CUDA_VISIBLE_DEVICES",
            lambda value: value.strip() in ("", "-1"),
            Status.PROBLEM,
            "Unset it, or name the GPUs to use: with it there is none.",
        ),
    ),
    look=("torch.version.cuda", "torch.cuda.is_available()", "torch.cuda.device_count()"),
    questions=(compiles("cuda", "inductor"),),
)


# Triton's group files name their members by absolute paths. Inductor's own entries carry Triton's kernels inside.
GRAPHS = GraphFiles(
    copy_to="inductor_cache",
    graph=("inductor/fxgraph/*",),
    fault=inductor_fault,
    locks=(),  # the kernel releases them with their process
    left_out=("*.lock", "*.tmp", "*.partial", "triton/*/__grp__*"),
    flags=("TORCHINDUCTOR_CPP_*", "TORCHINDUCTOR_MAX_AUTOTUNE*", "TORCHINDUCTOR_FREEZING", "CXX"),
)


def environment(cache: str) -> dict[str, str]:
    """Variables of the child: compiled graphs go to `cache`, a folder."""
    return {
        **CACHES_ON,
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "TRITON_CACHE_DIR": f"{cache}/triton",
        "TOKENIZERS_PARALLELISM": "false",
    }


def visible(cores: Sequence[int]) -> dict[str, str]:
    """Variables that show a child these GPUs, and no others."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, cores))}


def detect(facts: Mapping[str, Any]) -> Detection | None:
    """NVIDIA's driver names the GPUs; torch must be a CUDA build to use them."""
    torch = facts["distributions"].get("torch")
    if torch is None or not facts["gpus"]:
        return None
    model = facts["gpus"][0].lower()
    device = next((name for name in DEVICES if name in model.replace(" ", "")), "")
    notes = () if device else (f"The GPU {facts['gpus'][0]!r} is not in the device table: pass --device.",)
    if torch.endswith("+cpu"):
        notes = (*notes, "This torch is a CPU build: install a CUDA build of the same version.")
    return Detection(device, len(facts["gpus"]), torch.partition("+")[0], notes)


def fragments(plan: Plan) -> Fragments:
    sharded = plan.cores > 1
    return Fragments(
        backend="inductor",
        process_group="nccl",
        environment={"TOKENIZERS_PARALLELISM": "false"},
        rank_setup=("torch.cuda.set_device(rank)",),
        load_arguments=() if sharded else ('device_map="cuda",',),
        inputs_on_device=True,
        synchronize=("torch.cuda.synchronize()",),
        reset_peak=("torch.cuda.reset_peak_memory_stats()",),
        experts_implementation="batched_mm" if plan.is_moe else None,
        peak_bytes="torch.cuda.max_memory_allocated()",
        torch_imports=("from torch._inductor.runtime.cache_dir_utils import cache_dir",),
        cache_folder="cache_dir()",
        cache_pattern="fxgraph/*/*/*",
        cache_hits='torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"]',
        cache_misses='sum(torch._dynamo.utils.counters["inductor"][f"fxgraph_cache_{why}"] for why in ("miss", "bypass"))',
    )
