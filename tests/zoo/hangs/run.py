"""Never comes back."""

import time
from pathlib import Path

Path("stage").write_text("compile")
time.sleep(600)
