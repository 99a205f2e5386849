"""What the gathered facts mean: one check each. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from doesitrun.targets import TARGETS
from doesitrun.targets.checks import Check, Facts, Status, Trap, is_set, is_true, numbers, trapped

GB = 1e9
KNOWN_GOOD = (5, 24)
"""The transformers that run.py's DistributedConfig and CompileConfig were tried with."""
OLDEST = (5, 18)
"""The first transformers that wants a DistributedConfig."""
LITTLE_DISK_BYTES, NO_DISK_BYTES = 30e9, 3e9
LITTLE_MEMORY_BYTES, NO_MEMORY_BYTES = 8e9, 2e9
OPTIONAL = {"pillow": "image-text-to-text", "sentencepiece": "some tokenizers"}
"""Distributions that only some models need."""
_RANK = "Unset it: doesitrun starts its ranks itself, so do not start it with torchrun."
TRAPS = (
    *(Trap(name, is_set, Status.WARNING, _RANK) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")),
    Trap("TORCHDYNAMO_DISABLE", is_true, Status.PROBLEM, "Unset it: with it nothing is compiled."),
    Trap("TORCH_COMPILE_DISABLE", is_true, Status.PROBLEM, "Unset it: with it nothing is compiled."),
    Trap("HF_HUB_OFFLINE", is_true, Status.WARNING, "Unset it, unless every model is a local folder."),
    Trap("TRANSFORMERS_OFFLINE", is_true, Status.WARNING, "Unset it, unless every model is a local folder."),
    Trap("PYTHONPATH", is_set, Status.WARNING, "Unset it, unless you mean it: what lies there comes before the stack's own packages."),
    Trap("LD_PRELOAD", is_set, Status.WARNING, "Unset it, unless you mean it: it changes every process that is started."),
)


def judge(target: str, facts: Facts) -> tuple[Check, ...]:
    """All checks of a stack, the common ones first."""
    own = TARGETS[target].CHECKUP
    variables = trapped(facts.environment, (*TRAPS, *own.traps))
    return (
        *_packages(TARGETS[target].REQUIREMENTS, facts),
        _transformers(facts),
        *_imports(own.modules, facts),
        _processes(facts),
        *own.checks(facts),
        _cache(facts),
        _disk("disk of the workspace", "", facts.workspace_free_bytes, "put the workspace on a larger disk with --workspace"),
        _disk("disk of the Hub's files", f" in {facts.hub_folder}", facts.hub_free_bytes, "set HF_HOME to a folder on a larger disk"),
        _memory(facts),
        *(variables or (Check("variables", Status.OK, "none is set that changes a run"),)),
    )


def has_problem(checks: Iterable[Check]) -> bool:
    return any(check.status is Status.PROBLEM for check in checks)


# ---------------------------------------------------------------------------------- packages
def _packages(required: tuple[str, ...], facts: Facts) -> tuple[Check, ...]:
    found, lacking = facts.installed, [name for name in required if name not in facts.installed]
    listed = ", ".join(f"{name} {found[name]}" for name in required if name in found) or "none of what a run needs"
    python = f"Python {facts.probe.get('python', '?')} at {facts.python}: {listed}"
    if lacking:
        advice = f"Install what lacks: {facts.python} -m pip install {' '.join(lacking)}"
        return (Check("packages", Status.PROBLEM, f"{python}; {', '.join(lacking)} not installed", f"{advice}."),)
    some = {name: use for name, use in OPTIONAL.items() if name not in found}
    if some:
        use = ", ".join(f"{name} ({use})" for name, use in some.items())
        return (Check("packages", Status.WARNING, f"{python}; not there: {use}", f"If you need them: pip install {' '.join(some)}."),)
    return (Check("packages", Status.OK, python),)


def _transformers(facts: Facts) -> Check:
    version = facts.installed.get("transformers")
    if version is None:
        return Check("transformers", Status.PROBLEM, "it is not installed", "Install it: pip install transformers==5.24.0.")
    known = ".".join(map(str, KNOWN_GOOD))
    if numbers(version) < OLDEST:
        return Check(
            "transformers", Status.PROBLEM, f"{version} lacks what run.py uses", f"Install {known}: pip install transformers=={known}.0."
        )
    if numbers(version)[:2] != KNOWN_GOOD:
        return Check(
            "transformers", Status.WARNING, f"{version}; run.py was tried with {known}", f"If runs fail to load, install {known}.0."
        )
    return Check("transformers", Status.OK, f"{version}, with which run.py was tried")


def _imports(modules: tuple[str, ...], facts: Facts) -> tuple[Check, ...]:
    if facts.import_failure:
        advice = "Mend the installation until `python -c 'import torch'` works there."
        return (Check("imports", Status.PROBLEM, facts.import_failure, advice),)
    found = facts.imported.get("modules", {})
    broken = {name: found[name]["error"] for name in modules if name in found and found[name]["error"]}
    if broken:
        advice = "Install that package again, in a version that fits the others."
        return tuple(Check(f"import {name}", Status.PROBLEM, error, advice) for name, error in broken.items())
    seconds = sum(each["seconds"] for each in found.values())
    return (Check("imports", Status.OK, f"{', '.join(found)} in {seconds:.1f} s"),)


def _processes(facts: Facts) -> Check:
    """A runtime does not outlive a fork, and one that is loaded at every start of Python is in the way."""
    if not facts.imported:
        return Check("processes", Status.UNKNOWN, "the imports failed", "Mend them first.")
    early = facts.imported["early"]
    if early:
        advice = "Remove the .pth file or sitecustomize.py that imports it: a runtime must start in the process that uses it."
        return Check("processes", Status.WARNING, f"every Python there imports {', '.join(early)} as it starts", advice)
    method = facts.imported["start_method"]
    return Check("processes", Status.OK, f"multiprocessing's default is {method}; run.py always asks for spawn")


# ---------------------------------------------------------------------------------- the host
def _cache(facts: Facts) -> Check:
    if facts.graphs_failure:
        advice = "Give yourself the right to write there, or use another workspace with --workspace."
        return Check("folder of compiled graphs", Status.PROBLEM, f"{facts.graphs_folder}: {facts.graphs_failure}", advice)
    return Check("folder of compiled graphs", Status.OK, f"{facts.graphs_folder} can be written")


def _disk(name: str, place: str, free: int | None, advice: str) -> Check:
    if free is None:
        return Check(name, Status.UNKNOWN, "its free space cannot be read", "Look with `df -h`.")
    status = Status.PROBLEM if free < NO_DISK_BYTES else Status.WARNING if free < LITTLE_DISK_BYTES else Status.OK
    said = f"Free some space, or {advice}: checkpoints and compiled graphs take tens of GB."
    return Check(name, status, f"{free / GB:.0f} GB free{place}", "" if status is Status.OK else said)


def _memory(facts: Facts) -> Check:
    total, free = facts.probe.get("host_memory_bytes"), facts.memory_available_bytes
    if total is None or free is None:
        return Check("host memory", Status.UNKNOWN, "it cannot be read", "Look with `free -g`.")
    status = Status.PROBLEM if free < NO_MEMORY_BYTES else Status.WARNING if free < LITTLE_MEMORY_BYTES else Status.OK
    advice = "Close other programs: loading, compiling and the CPU reference need the model's size, or a multiple of it."
    return Check("host memory", status, f"{free / GB:.0f} GB free of {total / GB:.0f} GB", "" if status is Status.OK else advice)
