"""What `doctor` knows of Trainium environments: the pairs of versions of the AWS Neuron SDK, its tools, its variables.

The facts are those of the SDK's 2.33 documentation and of field notes; none was measured by us on a Trainium.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from doesitrun.targets.checks import Check, Facts, Holder, Program, Ran, Status, Trap, is_false, is_set, is_true, numbers

TOOLS = ("/opt/aws/neuron/bin",)
PROGRAMS = (
    Program("neuronx-cc", ("--version",)),
    Program("neuron-ls", ("-j",), TOOLS),
    Program("dpkg-query", ("-W", "-f", "${Package} ${Version}\n", "aws-neuronx-*")),
)
LOOK = ("torch.neuron", "torch.neuron.is_initialized()", "torch_xla")
MODULES = ("torch", "torch_neuronx", "transformers")
# Release 2.33: both families of torch-neuronx go with this compiler and this NKI.
_FAMILY, _COMPILER, _NKI = (3,), (2, 28), (0, 7)
_FIRST_NATIVE = (2, 13)
_PYTHONS = ((3, 12), (3, 14))
_LITTLE_HOST_BYTES = 32e9
_RUNTIME = ("aws-neuronx-runtime-lib", "aws-neuronx-collectives")
_CORES = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*")
_ASSUMED = "Unset it, unless you mean it: plans assume two physical cores and 24 GiB per logical one."
_KEY = "Unset it, unless you mean it: it enters the key of every compiled graph, and rows do not say it."


# ---------------------------------------------------------------------------------- variables
def cores_of(text: str) -> list[int] | None:
    """The cores that NEURON_RT_VISIBLE_CORES names ("4", "4-7", "4,5,6"), in its order; None if it is malformed."""
    if not _CORES.fullmatch(text):
        return None
    ends = [(int(part.partition("-")[0]), int(part.rpartition("-")[2])) for part in text.split(",")]
    cores = [core for first, last in ends for core in range(first, last + 1)]
    return cores if all(first <= last for first, last in ends) and len(set(cores)) == len(cores) else None


def usable_cores(environment: Mapping[str, str], count: int) -> Sequence[int]:
    """The cores that NEURON_RT_VISIBLE_CORES leaves, or all."""
    return cores_of(environment.get("NEURON_RT_VISIBLE_CORES", "")) or range(count)


TRAPS = (
    Trap(
        "NEURON_RT_VISIBLE_CORES",
        lambda value: value != "" and cores_of(value) is None,
        Status.PROBLEM,
        "Write it as one core (4), a range (4-7) or a list (4,5,6,7), or unset it.",
    ),
    Trap(
        "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION",
        is_false,
        Status.PROBLEM,
        "Unset it: with it a graph that does not compile runs uncompiled, and looks like a success.",
    ),
    Trap("NEURON_CC_FLAGS", is_set, Status.WARNING, _KEY),
    Trap("NEURON_COMPILER_OPT_LEVEL", is_set, Status.WARNING, _KEY),
    Trap("NEURON_PLATFORM_TARGET_OVERRIDE", is_set, Status.WARNING, "Unset it, unless you mean to compile for another chip."),
    Trap("NEURON_LOGICAL_NC_CONFIG", lambda value: value not in ("", "2"), Status.WARNING, _ASSUMED),
    Trap("TORCH_NEURONX_NEFF_DISABLE_CACHE", is_true, Status.WARNING, "Unset it: every run compiles everything again."),
    Trap("TORCH_NEURONX_DISABLE_NEFF_CACHE", is_true, Status.WARNING, "Unset it: every run compiles everything again."),
    Trap(
        "TORCH_NEURONX_ATEN_GMM_ALIGN",
        lambda value: value not in ("", "1"),
        Status.WARNING,
        "Unset it: run.py sets 1, for unpadded experts.",
    ),
    Trap("HF_DEACTIVATE_ASYNC_LOAD", is_false, Status.WARNING, "Unset it: loading weights in threads was seen to hang."),
    Trap("TORCH_DEVICE_BACKEND_AUTOLOAD", is_false, Status.WARNING, "Unset it: `import torch` alone then has no neuron device."),
    Trap("NEURON_RT_ROOT_COMM_ID", is_set, Status.WARNING, "Unset it: two sharded runs side by side would meet at one address."),
)


# ---------------------------------------------------------------------------------- checks
def checks(facts: Facts) -> tuple[Check, ...]:
    """The checks of a Trainium environment; those of the host are not made for an emulated device."""
    found = [_family(facts), _release(facts), _python(facts), _native(facts), _runtime_untouched(facts)]
    found += [_emulated(facts)] if facts.is_emulated else _host(facts)
    return tuple(found)


def _emulated(facts: Facts) -> Check:
    version = facts.installed.get("torch-neuronx", "")
    return Check(
        "device",
        Status.WARNING,
        f"EMULATED on the CPU by torch-neuronx {version}; driver, tools, compiler and cores were not looked at",
        "Nothing that is found here is a result for Trainium: run doctor on a trn2 for that.",
    )


def _host(facts: Facts) -> list[Check]:
    return [_devices(facts), _driver(facts), _libraries(facts), _compiler(facts), *_cores(facts), _host_memory(facts)]


def _family(facts: Facts) -> Check:
    torch, native = facts.installed.get("torch"), facts.installed.get("torch-neuronx")
    if torch is None or native is None:
        return Check(
            "torch and torch-neuronx", Status.PROBLEM, f"torch {torch}, torch-neuronx {native}", "Install both, of the same minor version."
        )
    found = f"torch {torch}, torch-neuronx {native}"
    if numbers(torch)[:2] != numbers(native)[:2]:
        major, minor = numbers(native)[:2]
        return Check(
            "torch and torch-neuronx", Status.PROBLEM, f"{found}: their minor versions differ", f"Install torch=={major}.{minor}.*."
        )
    return Check("torch and torch-neuronx", Status.OK, found)


def _release(facts: Facts) -> Check:
    """The compiler and NKI that the release notes pair with this torch-neuronx."""
    name = "compiler's version"
    native, compiler, nki = (facts.installed.get(each) for each in ("torch-neuronx", "neuronx-cc", "nki"))
    found = f"neuronx-cc {compiler}, nki {nki}"
    if native is None or compiler is None or nki is None:
        return Check(name, Status.PROBLEM, found, "Install torch-neuronx, neuronx-cc and nki together, from AWS Neuron's package index.")
    if numbers(native)[2:3] != _FAMILY or numbers(native)[:2] < _FIRST_NATIVE:
        return Check(
            name, Status.UNKNOWN, f"{found}; what goes with torch-neuronx {native} is not known here", "Compare with the release notes."
        )
    if numbers(compiler)[:2] != _COMPILER or numbers(nki)[:2] != _NKI:
        advice = "Install the three of one release: torch-neuronx 2.13.3 or 2.14.3 goes with neuronx-cc 2.28 and nki 0.7."
        return Check(name, Status.WARNING, f"{found}: not those of torch-neuronx {native}", advice)
    return Check(name, Status.OK, f"{found}, as release 2.33 pairs them")


def _python(facts: Facts) -> Check:
    version = str(facts.probe.get("python", "0.0"))
    first, last = _PYTHONS
    if first <= numbers(version)[:2] <= last:
        return Check("Python's version", Status.OK, version)
    return Check("Python's version", Status.WARNING, f"{version}; TorchNeuron is made for 3.12 to 3.14", "Make the stack with Python 3.12.")


def _native(facts: Facts) -> Check:
    name = "native backend"
    if facts.seen("torch_xla") or "torch-xla" in facts.installed:
        return Check(
            name,
            Status.PROBLEM,
            "torch-xla is there: this is the older, XLA-based package",
            "Make a new environment with torch-neuronx 2.13.3 or newer.",
        )
    if not facts.imported:
        return Check(name, Status.UNKNOWN, "the imports failed", "Mend them first.")
    if facts.seen("torch.neuron") is None:
        return Check(name, Status.PROBLEM, "torch has no torch.neuron", "Install a native torch-neuronx of torch's minor version.")
    return Check(name, Status.OK, "torch.neuron is there")


def _runtime_untouched(facts: Facts) -> Check:
    """A process group must come before the runtime starts, and no fork may come after it."""
    started = facts.seen("torch.neuron.is_initialized()")
    if started is True:
        advice = "Find what uses the device at import (sitecustomize, a .pth file): sharded runs cannot start after it."
        return Check("runtime at import", Status.PROBLEM, "importing torch starts the Neuron runtime", advice)
    if started is False:
        return Check("runtime at import", Status.OK, "importing torch starts no runtime")
    return Check("runtime at import", Status.UNKNOWN, f"torch.neuron.is_initialized() says {started}", "Mend the imports first.")


def _devices(facts: Facts) -> Check:
    files = facts.probe.get("device_files", [])
    product = facts.probe.get("product") or "unknown machine"
    if not files:
        advice = "On the host install aws-neuronx-dkms; in a container pass each chip with --device=/dev/neuron0 and so on."
        return Check("device", Status.PROBLEM, f"there is no /dev/neuron* ({product})", advice)
    if facts.forbidden_devices:
        advice = "Give this user the right to read and write it, or add the user to the file's group."
        return Check("device", Status.PROBLEM, f"{', '.join(facts.forbidden_devices)} may not be opened by this user", advice)
    return Check("device", Status.OK, f"{len(files)} chip{'s' if len(files) > 1 else ''}, {product}, {facts.probe.get('os')}")


def _driver(facts: Facts) -> Check:
    version = facts.probe.get("kernel_modules", {}).get("neuron")
    if version:
        return Check("driver", Status.OK, f"neuron {version}")
    if facts.probe.get("device_files"):
        return Check(
            "driver", Status.UNKNOWN, "/sys/module/neuron/version is not there", "In a container look on the host: modinfo neuron."
        )
    return Check(
        "driver",
        Status.PROBLEM,
        "the kernel module neuron is not loaded",
        "Install aws-neuronx-dkms on the host and load it: modprobe neuron.",
    )


def _libraries(facts: Facts) -> Check:
    ran = facts.programs.get("dpkg-query", Ran(None))
    if ran.path is None:
        return Check(
            "runtime libraries",
            Status.UNKNOWN,
            "dpkg-query is not there",
            "Look with the system's own package tool, e.g. rpm -qa 'aws-neuronx*'.",
        )
    packages = dict(line.split(" ", 1) for line in ran.output.splitlines() if line.count(" ") == 1 and not line.endswith(" "))
    lacking = [name for name in _RUNTIME if name not in packages]
    if lacking:
        advice = f"Install from AWS Neuron's apt repository: apt-get install {' '.join(lacking)}."
        return Check("runtime libraries", Status.WARNING, f"{', '.join(lacking)} not installed", advice)
    return Check("runtime libraries", Status.OK, ", ".join(f"{name} {packages[name]}" for name in _RUNTIME))


def _compiler(facts: Facts) -> Check:
    ran = facts.programs.get("neuronx-cc", Ran(None))
    if ran.path is None:
        return Check(
            "compiler", Status.PROBLEM, "there is no neuronx-cc on PATH", "Install neuronx-cc in the stack, and put its bin folder on PATH."
        )
    folder = ran.path.rpartition("/")[0]
    if not ran.on_path:
        advice = f'Activate the stack, or: export PATH="{folder}:$PATH"; torch-neuronx starts the compiler by its name.'
        return Check("compiler", Status.PROBLEM, f"{ran.path} is not on PATH", advice)
    if ran.status != 0:
        advice = "Install neuronx-cc again, for this Python."
        return Check("compiler", Status.PROBLEM, f"{ran.path} --version ends with {ran.status}: {ran.last_words}", advice)
    return Check("compiler", Status.OK, f"{ran.path}: {(ran.output.strip().splitlines() or ['no version'])[0]}")


# ---------------------------------------------------------------------------------- cores
def _cores(facts: Facts) -> list[Check]:
    ran = facts.programs.get("neuron-ls", Ran(None))
    chips = _chips(ran.output)
    if chips is None:
        why = "neuron-ls is not there" if ran.path is None else f"neuron-ls ends with {ran.status}: {ran.last_words or 'no JSON'}"
        seen = Check("cores", Status.UNKNOWN, why, "Install aws-neuronx-tools.")
        return [seen, _free_cores(facts.holders)]
    count = sum(int(chip.get("nc_count", 0)) for chip in chips)
    return [_core_count(count, chips, facts), _free_cores(_listed(chips) or facts.holders)]


def _chips(output: str) -> list[Mapping[str, Any]] | None:
    try:
        chips = json.loads(output)
    except ValueError:
        return None
    return chips if isinstance(chips, list) and all(isinstance(chip, dict) for chip in chips) else None


def _core_count(count: int, chips: list[Mapping[str, Any]], facts: Facts) -> Check:
    layouts = sorted({str(chip.get("logical_neuroncore_config", "?")) for chip in chips})
    found = f"{count} logical cores on {len(chips)} chips (logical core configuration {', '.join(layouts)})"
    asked = cores_of(facts.environment.get("NEURON_RT_VISIBLE_CORES", "")) or []
    if any(core >= count for core in asked):
        advice = f"Name cores from 0 to {count - 1} in NEURON_RT_VISIBLE_CORES."
        return Check("cores", Status.PROBLEM, f"{found}, but NEURON_RT_VISIBLE_CORES asks for {max(asked)}", advice)
    if layouts not in (["2"], ["?"]):
        return Check("cores", Status.WARNING, found, "Set NEURON_LOGICAL_NC_CONFIG=2: plans assume 24 GiB per logical core.")
    return Check("cores", Status.OK, found)


def _listed(chips: list[Mapping[str, Any]]) -> tuple[Holder, ...]:
    return tuple(
        Holder(int(process.get("pid", 0)), str(process.get("command", "?")), f"chip {chip.get('neuron_device', '?')}")
        for chip in chips
        for process in chip.get("neuron_processes") or ()
    )


def _free_cores(held_by: tuple[Holder, ...]) -> Check:
    if not held_by:  # two words of a command tell what it is; what follows may be private
        return Check("free cores", Status.OK, "no other process holds a chip, as far as this user may see")
    found = "; ".join(f"{holder.device}: process {holder.pid}, {' '.join(holder.command.split()[:2])}" for holder in held_by)
    advice = "Wait for them, or end those that are yours; NEURON_RT_VISIBLE_CORES keeps runs to the cores that are free."
    return Check("free cores", Status.WARNING, found, advice)


def _host_memory(facts: Facts) -> Check:
    total = int(facts.probe.get("host_memory_bytes", 0))
    found = f"{total / 1e9:.0f} GB"
    if total < _LITTLE_HOST_BYTES:
        advice = "Use a larger host or container: neuronx-cc is known to be killed for memory on small ones."
        return Check("memory for the compiler", Status.WARNING, found, advice)
    return Check("memory for the compiler", Status.OK, found)


def concerns(probe: Mapping[str, Any]) -> bool:
    """True on a machine with the device or its driver, and in a stack with any of its packages."""
    packages = {"torch-neuronx", "neuronx-cc"} & set(probe.get("distributions", {}))
    return bool(probe.get("device_files") or packages or probe.get("kernel_modules", {}).get("neuron"))
