"""Ends well with a result that was cut off."""

from pathlib import Path

Path("result.json").write_text('{"tokens": [1, 2,')
Path("stage").write_text("exit")
