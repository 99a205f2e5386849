"""Ends well and leaves a daemon (two forks, a session of its own, no parent)."""

import json
import os
import time
from pathlib import Path

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
Path("result.json").write_text(json.dumps({"tokens": [1, 2, 3]}))
Path("stage").write_text("exit")
