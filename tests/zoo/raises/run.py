"""Raises while it runs."""

from pathlib import Path

Path("stage").write_text("run")
print("a warning that means nothing")
raise ValueError("the rope has no end")
