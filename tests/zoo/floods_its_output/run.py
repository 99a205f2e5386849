"""Prints 1 GB, then says why it failed."""

import sys
from pathlib import Path

Path("stage").write_text("load")
print("the first line")
sys.stdout.flush()
for _ in range(1000):
    sys.stdout.buffer.write(b"0123456789abcdef\n" * 58824)
sys.stdout.flush()
raise RuntimeError("the last word")
