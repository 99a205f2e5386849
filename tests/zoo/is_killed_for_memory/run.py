"""Is ended by a SIGKILL, and its log shows that a compiler was killed for want of memory."""

import os
import signal
import sys
from pathlib import Path

Path("stage").write_text("compile")
print("Killed", file=sys.stderr, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
