"""cpu: Inductor on the host's processor; several gloo ranks stand for cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from doesitrun.records import Device, Plan
from doesitrun.targets.protocol import Detection, Fragments

NAME = "cpu"
COMPILER = "inductor"
DEVICES = {
    "cpu": Device(
        name="cpu",
        target="cpu",
        sizes=tuple(range(1, 17)),
        core_bytes=0,
        headroom=0.2,
        description="The host's processor; one core is one process, and the host's memory is shared among them.",
    )
}
REQUIREMENTS = ("torch", "transformers")
VERSION_COLUMNS: dict[str, str] = {}


def environment(cache: str) -> dict[str, str]:
    """Variables of the child: compiled graphs go to `cache`, a folder."""
    return {"TORCHINDUCTOR_CACHE_DIR": cache, "TOKENIZERS_PARALLELISM": "false"}


def detect(facts: Mapping[str, Any]) -> Detection | None:
    """Every machine with torch has this target; its compiler is the Inductor of that torch."""
    torch = facts["distributions"].get("torch")
    return None if torch is None else Detection("cpu", facts["cpu_count"], torch.partition("+")[0])


def fragments(plan: Plan) -> Fragments:
    return Fragments(
        backend="inductor",
        process_group="gloo",
        standard_imports=("resource",),
        environment={"TOKENIZERS_PARALLELISM": "false"},
        compile_extra=("compile_config._compile_all_devices = True  # generate() leaves the CPU out unless told otherwise",),
        run_setup=("torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // CORES))",),
        experts_implementation="batched_mm" if plan.is_moe else None,
        peak_bytes="resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024",
    )
