"""Imports the stack's libraries and says what became of it.

    python imports.py REQUEST.json ANSWER.json

Request: `modules`, names to import in this order, and `look`, dotted paths to look up afterwards; a path that ends
with `()` is called. Answer: `modules` (name -> {"version", "error", "seconds"}), `seen` (path -> its value if that is
plain, else its type's name; absent paths are None), `early` (those of the modules that Python had imported before this
script began), `start_method` (multiprocessing's own choice) and `headers` (where Python.h lies, or "").

This file runs in the stack's Python and imports nothing of doesitrun.
"""

from __future__ import annotations

import importlib
import json
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any


def attempt(name: str) -> dict[str, Any]:
    """The module's version, or the error of its import."""
    started = time.monotonic()
    try:
        module = importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 whatever a library raises is what is asked for
        return {"version": "", "error": f"{type(error).__name__}: {error}", "seconds": time.monotonic() - started}
    return {"version": str(getattr(module, "__version__", "")), "error": "", "seconds": time.monotonic() - started}


def look(path: str) -> Any:
    """The value at a dotted path; None when there is nothing, and the error of a call that fails."""
    first, *rest = path.removesuffix("()").split(".")
    value: Any = sys.modules.get(first)
    for name in rest:
        value = getattr(value, name, None)
    if value is not None and path.endswith("()"):
        try:
            value = value()
        except Exception as error:  # noqa: BLE001 as above
            return f"{type(error).__name__}: {error}"
    return value if value is None or isinstance(value, bool | int | float | str) else type(value).__name__


def headers() -> str:
    path = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return str(path) if path.exists() else ""


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    early = [name for name in request["modules"] if name in sys.modules]
    modules = {name: attempt(name) for name in request["modules"]}
    seen = {path: look(path) for path in request["look"]}
    method = importlib.import_module("multiprocessing").get_start_method(allow_none=False)
    return {"early": early, "modules": modules, "seen": seen, "start_method": method, "headers": headers()}


if __name__ == "__main__":
    answer = Path(sys.argv[2])
    found = answer_to(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    partial = answer.with_suffix(".partial")
    partial.write_text(json.dumps(found), encoding="utf-8")
    partial.replace(answer)
