"""What documents leave open about TorchNeuron on trn2, each with the small real runs that settle it.

`doesitrun doctor --examine` runs them, by `instack/examine.py`. In a step's values {folder} is a folder of the
question's own and {core} the first core that may be used; a group names cores by their place among those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from doesitrun.targets.checks import Observed, Program, Question, Step, compiles

NAMES = (
    "torch.neuron.synchronize",
    "torch.neuron.reset_peak_memory_stats",
    "torch.neuron.max_memory_allocated",
    "torch.neuron.get_device_properties",
    "torch.neuron.get_dynamo_metrics",
    "torch_neuronx.get_fallback_ops",
    "torch_neuronx.get_executed_ops",
)
_ONE = {"NEURON_RT_VISIBLE_CORES": "{core}", "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION": "1"}
_CACHE = _ONE | {"TORCH_NEURONX_NEFF_CACHE_DIR": "{folder}/neff", "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": "{folder}/local"}
_LOAD = _ONE | {"HF_DEACTIVATE_ASYNC_LOAD": "1"}
_SMALL = {"device": "neuron", "backend": "neuron"}
_PRETENDED = "0.0.0.0+pretended"
_HOLD_S = 12.0  # neuron-monitor reports every few seconds
_MODEL_S = 3600.0


def _failures(observed: Sequence[Observed]) -> str:
    return "; ".join(each.failure for each in observed if each.failure)


# ---------------------------------------------------------------------------------- conclusions
def names_found(observed: Sequence[Observed], _: str) -> str | None:
    found = observed[0].answer
    if found is None:
        return None
    absent = f"absent: {', '.join(found['absent'])}" if found["absent"] else "every name that run.py uses is there"
    return f"{absent}; the Dynamo backend neuron is {'there' if 'neuron' in found['backends'] else 'NOT there'}; device {found['device']!r}"


def cache_key(observed: Sequence[Observed], _: str) -> str | None:
    answers = [each.answer for each in observed]
    if any(answer is None for answer in answers):
        return None
    first, again, pretended = (int(answer["new"]) for answer in answers if answer is not None)
    if not first:
        return "nothing was written to TORCH_NEURONX_NEFF_CACHE_DIR: the cache lies elsewhere, or is off"
    if again:
        return f"the same graph missed the cache in a second process ({again} new files): the key holds something of the process"
    if pretended:
        return f"yes: another version of neuronx-cc (pretended) missed the cache ({pretended} new files)"
    return "no: a pretended other version of neuronx-cc found the graph of the first, so one folder must never serve two compilers"


def experts(observed: Sequence[Observed], _: str) -> str | None:
    if all(each.answer is None for each in observed):
        return None
    labels = ("_grouped_mm eager, default alignment", "compiled, default", "eager, alignment 1", "compiled, alignment 1")
    grouped = [f"{label}: {_grouped(each)}" for label, each in zip(labels, observed[:4], strict=True)]
    return "; ".join([*grouped, f"batched_mm in a compiled model: {_generated(observed[4])}"])


def _grouped(observed: Observed) -> str:
    found = observed.answer
    if found is None:
        return f"not known ({observed.failure})"
    if found["refused"]:
        return f"refused ({found['refused']})"
    return "right" if found["off_by"] <= 0.02 * found["largest"] else f"WRONG (off by {found['off_by']:.3g} of {found['largest']:.3g})"


def _generated(observed: Observed) -> str:
    found = observed.answer
    if found is None:
        return f"it failed ({observed.failure})"
    return _passes(found, found["expected"])


def _passes(found: Mapping[str, Any], expected: Sequence[int]) -> str:
    equal = sum(a == b for a, b in zip(found["tokens"], expected, strict=True))
    warm = "" if found["warm_tokens"] == found["tokens"] else ", and the second pass gave OTHER tokens"
    return (
        f"{equal} of {len(expected)} tokens are the CPU's, {found['graphs']} graphs, "
        f"{found['first_s']:.1f} s then {found['second_s']:.1f} s{warm}"
    )


def loading(observed: Sequence[Observed], _: str) -> str | None:
    threads, plain, whole = observed
    if all(each.answer is None for each in observed):
        return None
    texts = [
        f"loading with threads: {_loaded(threads)}",
        f"without (HF_DEACTIVATE_ASYNC_LOAD=1): {_loaded(plain)}",
        f"fullgraph=True through generate: {_generated(whole)}",
    ]
    return "; ".join(texts)


def _loaded(observed: Observed) -> str:
    found = observed.answer
    return f"it failed ({observed.failure})" if found is None else f"{found['seconds']:.1f} s, onto {', '.join(found['devices'])}"


def memory(observed: Sequence[Observed], monitor: str) -> str | None:
    filled, held = (each.answer for each in observed)
    if filled is None:
        return None
    text = (
        f"the runtime names {filled['total_bytes'] / 2**30:.2f} GiB a core; it held {filled['held_bytes'] / 2**30:.2f} GiB "
        f"before it refused more ({filled['refused'] or 'it never refused'})"
    )
    if held is None:
        return f"{text}; the comparison with neuron-monitor failed ({observed[1].failure})"
    peak = monitor_peak(monitor)
    compared = (
        "neuron-monitor was not there or said nothing" if peak is None else f"neuron-monitor saw {peak / 2**20:.0f} MiB on the fullest core"
    )
    return (
        f"{text}; while {held['block_bytes'] / 2**20:.0f} MiB were held, torch counted {held['peak_bytes'] / 2**20:.0f} MiB and {compared}"
    )


def monitor_peak(output: str) -> int | None:
    """The most bytes on one core in neuron-monitor's lines of JSON; None when no line tells."""
    peaks = [peak for line in output.splitlines() for peak in _line_peaks(line)]
    return max(peaks, default=None)


def _line_peaks(line: str) -> list[int]:
    try:
        runtimes = json.loads(line)["neuron_runtime_data"]
        used = [runtime["report"]["memory_used"]["neuron_runtime_used_bytes"] for runtime in runtimes]
        cores = [core for each in used for core in each["usage_breakdown"]["neuroncore_memory_usage"].values()]
        return [sum(int(part) for part in core.values()) for core in cores]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def group_results(observed: Sequence[Observed], _: str) -> str | None:
    labels = ("2 ranks on cores that do not begin at 0", "two groups of 2 side by side", "8 ranks")
    if all(each.answer is None for each in observed):
        return None
    return "; ".join(f"{label}: {_groups(each)}" for label, each in zip(labels, observed, strict=True))


def _groups(observed: Observed) -> str:
    if observed.answer is None:
        return f"not known ({observed.failure})"
    return " and ".join(_group(group) for group in observed.answer["groups"])


def _group(group: Mapping[str, Any]) -> str:
    errors = [f"rank {rank}: {each['error']}" for rank, each in enumerate(group["ranks"]) if "error" in each]
    if errors:
        return f"failed ({errors[0]})"
    if any(not each for each in group["ranks"]):
        return f"a rank left nothing (exit codes {group['exit_codes']})"
    return "works" if all(each["sum"] == each["expected_sum"] for each in group["ranks"]) else "WRONG sums"


def gathered(observed: Sequence[Observed], _: str) -> str | None:
    found = observed[0].answer
    if found is None:
        return None
    (group,) = found["groups"]
    text = _group(group)
    return text if text != "works" else f"works: {_passes(group['ranks'][0], found['expected'])}"


def exit_codes(observed: Sequence[Observed], _: str) -> str | None:
    found = observed[0].answer
    if found is None:
        return None
    (group,) = found["groups"]
    codes = f"after destroy_process_group the ranks ended with {group['exit_codes']} (negative: by that signal)"
    return f"{codes}; the group itself: {_group(group)}"


def compile_only(observed: Sequence[Observed], _: str) -> str | None:
    found = observed[0].answer
    if found is None or not found["words"]:
        return None
    words = ", ".join(f"{word} ({', '.join(files)})" for word, files in found["words"].items())
    return f"not tried; words of the package that may name it: {words}"


# ---------------------------------------------------------------------------------- the questions
def _grouped_steps() -> tuple[Step, ...]:
    aligned = _ONE | {"TORCH_NEURONX_ATEN_GMM_ALIGN": "1"}
    unset = _ONE | {"TORCH_NEURONX_ATEN_GMM_ALIGN": "128"}
    return tuple(Step("grouped_mm", {"compiled": compiled}, base) for base in (unset, aligned) for compiled in (False, True))


QUESTIONS = (
    Question("names", "Are the names that run.py uses there?", (Step("names", {"names": NAMES}, _ONE),), names_found),
    compiles("neuron", "neuron", _ONE),
    Question(
        "cache-key",
        "Is the compiler's version in the key of the graph cache?",
        (
            Step("cache_files", _SMALL, _CACHE),
            Step("cache_files", _SMALL, _CACHE),
            Step("cache_files", _SMALL | {"pretended_version": _PRETENDED}, _CACHE),
        ),
        cache_key,
    ),
    Question(
        "experts",
        "Does _grouped_mm need aligned groups, and is batched_mm compiled well?",
        (*_grouped_steps(), Step("generate", {"model": "qwen3_moe"}, _LOAD)),
        experts,
        _MODEL_S,
    ),
    Question(
        "loading",
        "Is HF_DEACTIVATE_ASYNC_LOAD still needed, and does fullgraph=True pass through generate?",
        (
            Step("load", {"model": "llama"}, _ONE | {"HF_DEACTIVATE_ASYNC_LOAD": "0"}),
            Step("load", {"model": "llama"}, _LOAD),
            Step("generate", {"model": "llama"}, _LOAD),
        ),
        loading,
    ),
    Question(
        "memory",
        "How many bytes of a core can be used, and does torch count what neuron-monitor sees?",
        (Step("fill", {}, _ONE), Step("hold", {"seconds": _HOLD_S}, _ONE)),
        memory,
        beside=Program("neuron-monitor", (), ("/opt/aws/neuron/bin",)),
    ),
    Question(
        "groups",
        "Do 8 ranks work, cores that do not begin at 0, and two groups side by side?",
        (
            Step("groups", {"groups": [[2, 3]]}, cores=4),
            Step("groups", {"groups": [[0, 1], [2, 3]]}, cores=4),
            Step("groups", {"groups": [[0, 1, 2, 3, 4, 5, 6, 7]]}, cores=8),
        ),
        group_results,
    ),
    Question(
        "gathered-attention",
        "Does the attention override for heads that do not divide work on the device?",
        (Step("override", {"model": "one_kv_head", "groups": [[0, 1]]}, cores=2),),
        gathered,
        _MODEL_S,
    ),
    Question(
        "exit-codes",
        "With which exit codes does a group of ranks end that did nothing wrong?",
        (Step("groups", {"groups": [[0, 1]]}, cores=2),),
        exit_codes,
    ),
    Question(
        "compile-only",
        "How is the compile-only mode turned on?",
        (Step("package_words", {"distribution": "torch-neuronx", "pattern": r"[A-Z_]*(?:COMPILE_ONLY|ONLY_COMPILE|CPU_COMPILE)[A-Z_]*"}),),
        compile_only,
    ),
)
