"""Writes its result, then crashes in the teardown."""

import json
import os
import signal
from pathlib import Path

Path("result.json").write_text(json.dumps({"tokens": [1, 2, 3]}))
Path("stage").write_text("exit")
os.kill(os.getpid(), signal.SIGSEGV)
