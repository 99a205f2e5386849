"""The module that becomes `torch.neuron`."""

import os
from dataclasses import dataclass

import torch
from torch import accelerator as _accelerator

from torch_neuronx.metrics import get_dynamo_metrics, reset_dynamo_metrics  # noqa: F401

_NAME = "Trainium2 (emulated on the CPU)"

# ---------------------------------------------------------------- devices


def device_count() -> int:
    return torch.ops.neuron_emu.device_count()


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return torch.ops.neuron_emu.is_started()


def init() -> None:
    torch.ops.neuron_emu.start()


current_device = _accelerator.current_device_index
set_device = _accelerator.set_device_index
synchronize = _accelerator.synchronize
current_stream = _accelerator.current_stream


def Event(**kwargs) -> torch.Event:  # noqa: N802  # the real name
    return torch.Event("neuron", **kwargs)


def Stream(**kwargs) -> torch.Stream:  # noqa: N802  # the real name
    return torch.Stream("neuron", **kwargs)


class device(_accelerator.device_index):  # noqa: N801  # the real name
    """`with torch.neuron.device(1)`, also `"neuron:1"` or a torch.device."""

    def __init__(self, device: int | str | torch.device) -> None:
        super().__init__(device if isinstance(device, int) else torch.device(device).index or 0)


@dataclass(frozen=True)
class DeviceProperties:
    name: str
    total_memory: int


def core_bytes() -> int:
    """The memory of one core: NEURON_EMU_CORE_GB (GiB, 24 by default)."""
    return int(float(os.environ.get("NEURON_EMU_CORE_GB", "24")) * 2**30)


def get_device_name(device: int | str | torch.device | None = None) -> str:
    return _NAME


def get_device_properties(device: int | str | torch.device) -> DeviceProperties:
    index = device if isinstance(device, int) else torch.device(device).index or 0
    if not 0 <= index < device_count():
        raise ValueError(f"Invalid device id: {index}")
    init()
    return DeviceProperties(_NAME, core_bytes())


# ---------------------------------------------------------------- memory: real byte counts of the C++ allocator
memory_stats = _accelerator.memory_stats
memory_allocated = _accelerator.memory_allocated
max_memory_allocated = _accelerator.max_memory_allocated
memory_reserved = _accelerator.memory_reserved
max_memory_reserved = _accelerator.max_memory_reserved
reset_peak_memory_stats = _accelerator.reset_peak_memory_stats
reset_accumulated_memory_stats = _accelerator.reset_accumulated_memory_stats
empty_cache = _accelerator.empty_cache
mem_get_info = _accelerator.get_memory_info


def memory_summary(device: int | None = None, abbreviated: bool = False) -> str:
    return f"{_NAME}: {memory_allocated(device)} bytes allocated, {max_memory_allocated(device)} at the peak"


# ---------------------------------------------------------------- dtypes, autocast
def is_bf16_supported() -> bool:
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


# ---------------------------------------------------------------- random numbers: the CPU's generator is the device's
def _is_in_bad_fork() -> bool:
    return torch.ops.neuron_emu.is_forked()


def manual_seed(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


manual_seed_all = manual_seed


def get_rng_state(device: str = "neuron") -> torch.Tensor:
    return torch.default_generator.get_state()


def set_rng_state(new_state: torch.Tensor, device: str = "neuron") -> None:
    torch.default_generator.set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    set_rng_state(new_states[0])
