"""Says PASS and fails."""

import sys
from pathlib import Path

Path("stage").write_text("run")
print("Compiler status PASS")
print("PASS")
sys.exit(1)
