"""Ends well without a word and without a result."""

import sys
from pathlib import Path

Path("stage").write_text("run")
sys.exit(0)
