"""Its compiler says PASS many times, and then the process is killed."""

import os
import signal
from pathlib import Path

Path("stage").write_text("compile")
for _ in range(40):
    print("Compiler status PASS", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
