"""Is ended by a SIGKILL that the harness did not send."""

import os
import signal
import time
from pathlib import Path

Path("stage").write_text("compile")
print("Compiler status PASS", flush=True)
if os.fork() == 0:
    os.kill(os.getppid(), signal.SIGKILL)
time.sleep(600)
