"""Takes memory until it is stopped, half of it in a child."""

import os
import time
from pathlib import Path

Path("stage").write_text("load")
os.fork()
held = []
for _ in range(40):
    held.append(bytearray(b"x") * 10_000_000)
    time.sleep(0.02)
time.sleep(600)
