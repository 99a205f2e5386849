"""Prints bytes that are no text, then raises."""

import os
from pathlib import Path

Path("stage").write_text("run")
os.write(1, bytes(range(256)) * 4)
os.write(2, b"\xff\xfe\x00\x80 \xe2\x82\n")
raise KeyError("\udcff")
