"""Whatever moment a writer is killed at, the workspace stays whole."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from doesitrun.outcomes import Reason, Result
from doesitrun.store.workspace import Workspace

KILLS = 4

# Writes big rows, starts attempts and exports, for ever. The line on stdout says that it is under way.
WRITER = """
import itertools, sys
from pathlib import Path
from doesitrun.outcomes import Result
from doesitrun.records import Row
from doesitrun.store.workspace import Workspace, write_row
import psutil, pyarrow.parquet
space = Workspace(Path(sys.argv[1]))
print("ready", flush=True)
for n in itertools.count():
    stack = Row(model_id=f"org/m{n % 3}", target="cpu", compiler="inductor", compiler_version=str(n % 2), library="transformers")
    folder = space.new_attempt(f"plan{n % 3}", stack)
    write_row(folder, Row(**{**stack.__dict__, "result": Result.PASS, "run_py": f"{n}" * 100_000}))
    space.export()
"""

# Forks writers of which the n-th kills itself just before its n-th call that changes files, until one gets through.
CRASHER = """
import os, shutil, signal, sys
from pathlib import Path
import pandas, psutil, pyarrow.parquet  # not once more in every fork
from doesitrun.store.ledger import _digest, _read_note
from doesitrun.outcomes import Result
from doesitrun.records import Row
from doesitrun.store.workspace import Workspace, write_row

CALLS = {"open", "write", "close", "replace", "rename", "unlink", "mkdir", "rmdir"}

def work(space, version):
    stack = Row(model_id="org/m", target="cpu", compiler="inductor", compiler_version=str(version), library="transformers")
    folder = space.new_attempt("plan", stack)
    write_row(folder, Row(**{**stack.__dict__, "result": Result.PASS}))
    space.export()

def die_at(n):
    left = n
    def count(frame, event, called):
        nonlocal left
        ours = frame.f_code.co_filename.endswith(("files.py", "pathlib.py", "tempfile.py", "store.py", "ledger.py"))
        if event == "c_call" and ours and called.__name__ in CALLS and not isinstance(called.__self__, str):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(count)

def check(space):
    assert space.rows().broken == (), space.rows().broken
    known = _read_note(space.attempts / "exported.json")
    for path in space.root.rglob("*"):
        if path.suffix in (".parquet", ".md"):
            assert _digest(path.read_bytes()) in known[str(path.relative_to(space.root))], path

def forked(space, version, calls):
    pid = os.fork()
    if pid == 0:
        die_at(calls)
        work(space, version)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    check(space)
    return os.waitstatus_to_exitcode(status)

root = Path(sys.argv[1])
assert forked(Workspace(root / "0"), 0, 0) == 0
for n in range(1, 500):
    shutil.copytree(root / "0", root / str(n))
    if (code := forked(Workspace(root / str(n)), 1, n)) == 0:
        break
    assert code == -signal.SIGKILL
print(n)
"""

RACER = """
import sys
from pathlib import Path
from doesitrun.store.workspace import Workspace
for _ in range(25):
    print(Workspace(Path(sys.argv[1])).new_attempt("plan"))
"""


def killed_writer(root: Path, after_s: float) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_a_killed_writer_leaves_no_broken_file(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    chance = random.Random(7)
    for _ in range(KILLS):
        killed_writer(tmp_path, chance.uniform(0.01, 0.35))
        found = space.rows()
        assert found.broken == ()
        for path in tmp_path.glob("data/*/*/*.parquet"):
            assert pq.read_table(path).num_rows > 0
        if (tmp_path / "attempts/exported.json").exists():
            json.loads((tmp_path / "attempts/exported.json").read_bytes())
    assert found.rows
    pending = [row for row in found.rows if row.result is None]
    settled = space.settle_interrupted()
    assert [(row.run_id, row.reason) for row in settled.rows] == [(row.run_id, Reason.INTERRUPTED) for row in pending]
    assert all(row.result in (Result.PASS, Result.INCONCLUSIVE) for row in space.rows().rows)
    assert space.export().warnings == ()


def test_a_writer_killed_before_any_of_its_calls_leaves_whole_files_that_are_known_as_ours(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CRASHER, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20
    for root in tmp_path.iterdir():
        space = Workspace(root)
        for ownerless in root.glob("attempts/*/.new-*"):
            os.utime(ownerless, (0, 0))  # it would be left alone for a minute
        space.settle_interrupted()
        assert space.export().warnings == ()
        assert [row.attempt for row in space.rows().rows] in ([1], [1, 2])
        assert not [path for path in root.rglob("*") if path.name.startswith(".")]


def test_no_two_processes_are_given_one_folder(tmp_path: Path) -> None:
    racers = [subprocess.Popen([sys.executable, "-c", RACER, str(tmp_path)], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    folders = [line for racer in racers for line in racer.communicate(timeout=60)[0].splitlines()]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert sorted(int(Path(folder).name) for folder in folders) == list(range(1, 76))
    assert [row.attempt for row in Workspace(tmp_path).settle_interrupted().rows] == list(range(1, 76))
