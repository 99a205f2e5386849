"""Writes its result, then hangs in the teardown."""

import json
import time
from pathlib import Path

Path("result.json").write_text(json.dumps({"tokens": [1, 2, 3]}))
Path("stage").write_text("exit")
time.sleep(600)
