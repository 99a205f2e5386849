"""What a model is before it runs: found on the Hub, in a folder or as a bare config; no weight is loaded.

`repository` asks the Hub, `checkpoint` reads a folder, and `safetensors_header` reads the names and sizes of weights.
"""

from __future__ import annotations

from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.hub.repository import HubThrottledError, open_checkpoint

__all__ = ["Checkpoint", "HubThrottledError", "open_checkpoint"]
