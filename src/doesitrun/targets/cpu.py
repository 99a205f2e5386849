"""cpu: Inductor on the host's processor; several gloo ranks stand for cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from doesitrun.records import Device, Plan
from doesitrun.targets.checks import Check, Checkup, Facts, Program, Ran, Status, compiles
from doesitrun.targets.graph_files import CACHES_ON, GraphFiles, inductor_fault, processor
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
        description="The host's processor; one core is one process with one thread, and the host's memory is shared among them.",
    )
}
REQUIREMENTS = ("torch", "transformers")
RESOURCE = "CPU"
VERSION_COLUMNS: dict[str, str] = {}
PIP_INDEXES: tuple[str, ...] = ()
# Inductor compiles C++ with OpenMP, against Python's headers; it takes the compiler that CXX names.
_COMPILER = Program(
    "g++",
    ("-shared", "-fPIC", "-fopenmp", "-include", "omp.h", "-include", "vector", "-x", "c++", "/dev/null", "-o", "a.so"),
    variable="CXX",
)


def checks(facts: Facts) -> tuple[Check, ...]:
    """Whether Inductor finds what it compiles with."""
    return (_compiler(facts.programs.get(_COMPILER.command, Ran(None))), _headers(facts))


def _compiler(ran: Ran) -> Check:
    if ran.path is None:
        return Check("C++ compiler", Status.PROBLEM, "there is none", "Install g++, or name another compiler in CXX.")
    if ran.status != 0:
        found = f"{ran.path} cannot compile with OpenMP: {ran.last_words or f'it ends with {ran.status}'}"
        return Check(
            "C++ compiler", Status.PROBLEM, found, "Install g++ with its OpenMP library (libgomp), or name another compiler in CXX."
        )
    return Check("C++ compiler", Status.OK, f"{ran.path} compiles, with OpenMP")


def _headers(facts: Facts) -> Check:
    if not facts.imported:
        return Check("Python's headers", Status.UNKNOWN, "the imports failed", "Mend them first.")
    if not facts.imported["headers"]:
        return Check("Python's headers", Status.PROBLEM, "Python.h is not there", "Install the headers of that Python (python3-dev).")
    return Check("Python's headers", Status.OK, facts.imported["headers"])


CHECKUP = Checkup(concerns=lambda _: True, checks=checks, programs=(_COMPILER,), questions=(compiles("cpu", "inductor"),))


GRAPHS = GraphFiles(
    copy_to="inductor_cache",
    graph=("fxgraph/*",),
    fault=inductor_fault,
    locks=(),  # the kernel releases them with their process
    flags=("TORCHINDUCTOR_CPP_*", "TORCHINDUCTOR_MAX_AUTOTUNE*", "TORCHINDUCTOR_FREEZING", "CXX"),
)


def environment(cache: str) -> dict[str, str]:
    """Variables of the child: compiled graphs go to `cache`, a folder."""
    return {"TORCHINDUCTOR_CACHE_DIR": cache, **CACHES_ON, "TOKENIZERS_PARALLELISM": "false"}


def visible(cores: Sequence[int]) -> dict[str, str]:  # noqa: ARG001
    """None: a core is a thread, and the kernel finds room for it."""
    return {}


def detect(facts: Mapping[str, Any]) -> Detection | None:
    """Every machine with torch has this target; its compiler is the Inductor of that torch."""
    torch = facts["distributions"].get("torch")
    if torch is None:
        return None
    machine = processor(facts.get("architecture", ""), facts.get("cpu_flags", ()))
    return Detection("cpu", facts["cpu_count"], torch.partition("+")[0], machine=machine)


# The hash of a device mesh differs from process to process (None and strings are hashed by address or at random), and
# Inductor's cache keys hold it: without this, a sharded graph is compiled anew in every run.
_STEADY_MESH = (
    "# The compiler's cache keys hold a mesh's hash, which must then not differ from run to run.",
    "dist.device_mesh.DeviceMesh.__hash__ = lambda mesh: hash(repr(mesh))",
)


def fragments(plan: Plan) -> Fragments:
    return Fragments(
        backend="inductor",
        process_group="gloo",
        standard_imports=("resource",),
        environment={"TOKENIZERS_PARALLELISM": "false"},
        rank_setup=_STEADY_MESH,
        compile_extra=("compile_config._compile_all_devices = True  # generate() leaves the CPU out unless told otherwise",),
        run_setup=("torch.set_num_threads(1)  # a core is one thread; more would wait for each other on a busy machine",),
        experts_implementation="batched_mm" if plan.is_moe else None,
        peak_bytes="resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024",
        torch_imports=("from torch._inductor.runtime.cache_dir_utils import cache_dir",),
        cache_folder="cache_dir()",
        cache_pattern="fxgraph/*/*/*",
        cache_hits='torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"]',
        cache_misses='sum(torch._dynamo.utils.counters["inductor"][f"fxgraph_cache_{why}"] for why in ("miss", "bypass"))',
    )
