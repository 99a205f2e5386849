"""Reads address zero."""

import ctypes
from pathlib import Path

Path("stage").write_text("compile")
ctypes.string_at(0)
