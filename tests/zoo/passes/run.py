"""Writes a result and ends well."""

import json
from pathlib import Path

for stage in ("load", "compile", "run"):
    Path("stage").write_text(stage)
Path("result.json").write_text(json.dumps({"tokens": [1, 2, 3]}))
Path("stage").write_text("exit")
