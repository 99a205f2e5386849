"""Rank 1 fails; rank 0 notices first, loudly, that its peer is gone."""

import os
import sys
import time
from pathlib import Path

NOISE = """[rank0]: Traceback (most recent call last):
[rank0]:   File "run.py", line 90, in rank_main
[rank0]:     dist.barrier()
[rank0]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:20417
"""
CAUSE = """[rank1]: Traceback (most recent call last):
[rank1]:   File "run.py", line 77, in generate
[rank1]:     output = model.generate(**inputs)
[rank1]: RuntimeError: shape '[1, 9, -1, 64]' is invalid for input of size 4096
"""

Path("stage").write_text("compile")
if os.fork() == 0:
    time.sleep(0.1)
    sys.stderr.write(CAUSE)
    os._exit(1)
sys.stderr.write(NOISE)
os.wait()
sys.exit(1)
