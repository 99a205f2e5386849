"""An emulated `torch_neuronx`: a `neuron` device on the CPU, loaded by torch's backend autoload.

README.md, two folders up, says what is emulated and lists the environment variables.
"""

__version__ = "2.13.3.0+emulated"


def _autoload() -> None:
    """Entry point `torch.backends`: importing this module has already done the work.

    It is defined before torch is imported, because `import torch` calls it while `import torch_neuronx` is under way.
    """


import os  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402

from torch_neuronx import build, group, neuron  # noqa: E402

_TRUE = ("1", "true", "yes")


def _cache_disabled() -> bool:
    names = ("TORCH_NEURONX_NEFF_DISABLE_CACHE", "TORCH_NEURONX_DISABLE_NEFF_CACHE")
    return any(os.environ.get(name, "").lower() in _TRUE for name in names)


def _register() -> None:
    torch.set_num_threads(int(os.environ.get("NEURON_EMU_THREADS", "1")))  # several ranks share the host's processors
    torch.ops.load_library(str(build.library()))
    torch.utils.rename_privateuse1_backend("neuron")
    # Not the real default, /tmp/neff_cache: no emulated file may ever lie where a real device looks.
    default = Path(tempfile.gettempdir()) / "neff_cache_emulated"
    folder = os.environ.get("TORCH_NEURONX_NEFF_CACHE_DIR") or str(default)
    torch.ops.neuron_emu.register_device(neuron.core_bytes(), folder, not _cache_disabled())
    torch._register_device_module("neuron", neuron)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    group.register()


_register()

from torch_neuronx.metrics import get_dynamo_metrics, reset_dynamo_metrics  # noqa: E402, F401
from torch_neuronx.neuron import *  # noqa: E402, F403  # torch_neuronx.X and torch.neuron.X are both in use


def is_neuron_runtime_initialized() -> bool:
    return neuron.is_initialized()


def get_executed_ops() -> list[str]:
    """The operators that ran eagerly on the device."""
    return torch.ops.neuron_emu.executed_ops()


def get_fallback_ops() -> list[str]:
    """The eager operators that the device left to the CPU."""
    return torch.ops.neuron_emu.fallback_ops()


def clear_op_tracking() -> None:
    torch.ops.neuron_emu.clear_tracking()
