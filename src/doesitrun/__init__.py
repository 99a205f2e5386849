"""doesitrun: does this Hugging Face model run on that accelerator, with that software stack?

doesitrun.load("results")                       every published row, as a pandas frame
doesitrun.lookup("qwen3", target="neuron")      the models of that name, one line each
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from doesitrun.catalog.frames import load, lookup

__version__ = "0.1.0"
__all__ = ["__version__", "load", "lookup"]


def __getattr__(name: str) -> Any:
    """Loads what needs pandas only when it is asked for."""
    if name not in ("load", "lookup"):
        message = f"module 'doesitrun' has no attribute {name!r}"
        raise AttributeError(message)
    from doesitrun.catalog import frames

    return getattr(frames, name)
