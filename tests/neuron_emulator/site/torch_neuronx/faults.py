"""Faults on demand, shaped like the real device's, so that their classification can be tried end to end.

NEURON_EMU_FAULT is a comma separated list of NAME or NAME:ARGUMENT; NEURON_EMU_FAULT_RANK limits it to one RANK.
`busy` and `fallback` are in the C++ part.
"""

import os
import signal
import sys
import time
from typing import NoReturn

import torch

_REFUSAL = {
    "NCC_EVRF001": "Operator aten::cumsum is not supported",
    "NCC_EOOM001": "The graph needs more device memory than the 24 GB available",
    "NCC_EBVF030": "The number of instructions generated exceeds the limit",
}


class NEFFCompilationError(RuntimeError):
    """The compiler refused a graph."""


class NEFFExecutionError(RuntimeError):
    """A compiled graph failed on the device."""


def argument(name: str) -> str | None:
    """What follows the fault's colon ("" if nothing does); None if this fault is not asked for."""
    rank = os.environ.get("NEURON_EMU_FAULT_RANK")
    if rank and rank != os.environ.get("RANK", "0"):
        return None
    asked = dict(fault.partition(":")[::2] for fault in os.environ.get("NEURON_EMU_FAULT", "").split(","))
    return asked.get(name)


def refuse_to_compile(code: str, message: str, key: str) -> NoReturn:
    """Prints what neuronx-cc prints and raises what TorchNeuron raises."""
    internal = code.startswith("NCC_I")
    exit_status = 70 if internal else 1
    label = f"[INTERNAL_ERROR] [{code}]" if internal else f"[ERROR] [{code}]"
    print(f"{label} {message} (emulated)", file=sys.stderr, flush=True)
    raise NEFFCompilationError(
        f"Compilation failed for cache key {key}: COMPILATION FAILED: (neuronx-cc compilation) with exit code {exit_status}: "
        f"NEFF compilation failed with return code {exit_status}: {label} {message}"
    )


def before_barrier() -> None:
    if argument("barrier") is not None:
        raise RuntimeError("Failed to execute the device barrier 1")


def while_compiling(key: str) -> None:
    slow = argument("slow_compile")
    if slow is not None:
        time.sleep(float(slow or 3600))
    code = argument("compile_error")
    if code is not None:
        code = code or "NCC_EVRF001"
        refuse_to_compile(code, _REFUSAL.get(code, "Please report this as a bug"), key)


def before_run(runs: int) -> None:
    """`runs`: how often this process has run a compiled graph so far."""
    if argument("oom") is not None:
        print("Neuron OOM: requested_size=1073741824 total_hbm=25769803776 (emulated)", file=sys.stderr, flush=True)
        raise NEFFExecutionError("NRT EXECUTION FAILED: NRT allocation failed for size 1073741824 (OOM): NRT_RESOURCE")
    status = argument("exec")
    if status is not None:
        raise NEFFExecutionError(f"NRT EXECUTION FAILED: nrt_execute status={status or 1204}")
    hang = argument("hang")
    if hang is not None and runs >= int(hang or 0):
        print("suspected hang in collectives (emulated)", file=sys.stderr, flush=True)
        time.sleep(3600)


def spoil(outputs: list) -> list:
    """`nan`: every number becomes NaN. `wrong`: numbers are off, as if a kernel were broken, and nothing says so."""
    if argument("nan") is not None:
        return [torch.full_like(value, float("nan")) if _is_float(value) else value for value in outputs]
    if argument("wrong") is not None:
        return [value + value.roll(1, -1) if _is_float(value) else value for value in outputs]
    return outputs


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def after_destroy() -> None:
    """`teardown`: the process dies after its work is done."""
    if argument("teardown") is not None:
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGSEGV)
