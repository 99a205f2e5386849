"""What `accelerate estimate-memory` says of the same local configs: `python accelerate_sizes.py REQUEST.json ANSWER.json`.

Its own functions are called, in one process; only its question to the Hub is answered from the local file.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import transformers
from accelerate.commands import estimate
from accelerate.utils import calculate_maximum_sizes

LIMIT_S = 60


def measure(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Parameters and seconds for one config; 0 parameters where it cannot build the model."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    estimate.verify_on_hub = lambda *_args: SimpleNamespace(config=config, library_name="transformers")
    started = time.perf_counter()
    signal.alarm(LIMIT_S)
    try:
        model = estimate.create_empty_model(str(folder), "transformers")
        total, _ = calculate_maximum_sizes(model)
        parameters = total // 4  # it builds in float32
    except Exception:  # noqa: BLE001 whatever it fails on, it has no answer
        parameters = 0
    finally:
        signal.alarm(0)
    return {"parameters": int(parameters), "seconds": time.perf_counter() - started}


def main(request_path: str, answer_path: str) -> None:
    def on_alarm(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, on_alarm)
    transformers.logging.set_verbosity_error()
    configs = json.loads(Path(request_path).read_text(encoding="utf-8"))
    answers = {}
    for model_id, config in configs.items():
        with tempfile.TemporaryDirectory() as folder:
            answers[model_id] = measure(config, Path(folder))
    Path(answer_path).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
