"""Hangs, as do a child and a grandchild in a session of its own, deaf to polite signals."""

import os
import signal
import time
from pathlib import Path

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    os.fork()
else:
    Path("stage").write_text("run")
time.sleep(600)
