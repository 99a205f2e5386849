"""What isolate promises, one property a test, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from doesitrun import isolate
from doesitrun.errors import IsolationError, StackError
from doesitrun.isolate import Limits, child_environment, read_log, read_result, run, run_script
from doesitrun.outcomes import Stage

FOREVER = "import time; time.sleep(600)"
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(600)
open("ready", "w").close()
time.sleep(600)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def environment(**extra: str) -> dict[str, str]:
    return child_environment(os.environ, extra, keep_token=False)


def marked(mark: str) -> list[int]:
    """Processes with the variable ISOLATE_TEST=mark, zombies left out."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("ISOLATE_TEST") == mark:
                found.append(process.pid)
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return found


def wait_until(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)


@pytest.fixture
def mark():
    return uuid.uuid4().hex


# ------------------------------------------------------------------------------ what a child is given
def test_the_child_sees_its_environment_and_nothing_else(tmp_path):
    code = "import json, os; json.dump(dict(os.environ), open('env.json', 'w'))"
    run(python(code), tmp_path, {"PATH": os.environ["PATH"], "ODD": "\udcff é"}, Limits())
    seen = json.loads((tmp_path / "env.json").read_text())
    assert seen.pop(isolate.MARK)
    seen.pop("LC_CTYPE", None)  # Python sets it itself in the C locale
    assert seen == {"PATH": os.environ["PATH"], "ODD": "\udcff é"}


def test_the_child_works_in_its_folder_which_is_made(tmp_path):
    folder = tmp_path / "a" / "b c é"
    run(python("import os; print(os.getcwd())"), folder, environment(), Limits())
    assert (folder / "stdout.log").read_text() == f"{folder}\n"


def test_standard_input_is_empty(tmp_path):
    ended = run(python("import sys; sys.exit(len(sys.stdin.read()))"), tmp_path, environment(), Limits(start_s=5))
    assert ended.exit_status == 0


def test_no_descriptor_of_the_harness_reaches_the_child(tmp_path):
    secret = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(secret, True)
    ended = run(python("import os; print(sorted(os.listdir('/proc/self/fd')))"), tmp_path / "a", environment(), Limits())
    os.close(secret)
    assert ended.exit_status == 0
    assert read_log(tmp_path / "a") == "['0', '1', '2', '3']"  # 3 is the listing itself


def test_a_broken_pipe_ends_a_program_as_in_a_shell(tmp_path):
    ended = run(["sh", "-c", "yes | head -n 1; echo done"], tmp_path, environment(), Limits(start_s=5))
    assert (ended.exit_status, read_log(tmp_path)) == (0, "y\ndone")


def test_no_core_is_dumped(tmp_path):
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"
    run(python(code), tmp_path, environment(), Limits())
    assert read_log(tmp_path) == "(0, 0)"


# ------------------------------------------------------------------------------ how its end is told
@pytest.mark.parametrize("status", [0, 1, 70, 255])
def test_the_exit_status_is_told(tmp_path, status):
    ended = run(python(f"import os; os._exit({status})"), tmp_path, environment(), Limits())
    assert (ended.exit_status, ended.signal, ended.stage, ended.timed_out) == (status, None, Stage.START, False)


def test_a_signal_is_told(tmp_path):
    ended = run(["sh", "-c", "kill -ABRT $$"], tmp_path, environment(), Limits())
    assert (ended.exit_status, ended.signal) == (None, signal.SIGABRT)


def test_a_program_that_does_not_exist_is_one_sentence(tmp_path):
    with pytest.raises(IsolationError, match="no-such-program cannot be started"):
        run(["no-such-program"], tmp_path, environment(), Limits())


def test_a_word_with_a_null_byte_is_one_sentence(tmp_path):
    with pytest.raises(IsolationError, match="cannot be started"):
        run([sys.executable, "-c", "a\0b"], tmp_path, environment(), Limits())


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(IsolationError, match="cannot be written"):
        run(["true"], tmp_path / "file" / "folder", environment(), Limits())


def test_stages_are_followed_and_timed(tmp_path):
    code = """
        import time
        for stage, seconds in (("load", 0.4), ("compile", 0.6), ("nonsense", 0.2), ("run", 0.3)):
            open("stage", "w").write(stage)
            time.sleep(seconds)
    """
    calls = []
    ended = run(python(code), tmp_path, environment(), Limits(), lambda *call: calls.append(call))
    assert ended.stage is Stage.RUN
    assert list(ended.stage_s) == ["start", "load", "compile", "run"]
    assert ended.stage_s["load"] == pytest.approx(0.4, abs=0.15)
    assert ended.stage_s["compile"] == pytest.approx(0.8, abs=0.15)  # a word that is no stage changes nothing
    assert sum(ended.stage_s.values()) == pytest.approx(ended.wall_s, abs=0.01)
    assert [stage for stage, _ in calls] == sorted((stage for stage, _ in calls), key=list(Stage).index)
    assert {stage for stage, _ in calls} == {Stage.START, Stage.LOAD, Stage.COMPILE, Stage.RUN}
    assert all(0 <= elapsed_s < 1 for _, elapsed_s in calls)


def test_a_stage_of_an_earlier_run_is_not_believed(tmp_path):
    (tmp_path / "stage").write_text("run")
    assert run(["true"], tmp_path, environment(), Limits()).stage is Stage.START


@pytest.mark.parametrize("words", [b"\xff\xfe", b"verify", b"load" * 1000, b"", b"PASS"])
def test_no_stage_file_confuses(tmp_path, words):
    code = f"open('stage', 'wb').write({words!r}); import time; time.sleep(0.2)"
    assert run(python(code), tmp_path, environment(), Limits()).stage is Stage.START


def test_going_back_to_a_stage_does_not_restart_its_clock(tmp_path):
    code = """
        import time
        while True:
            for stage in ("load", "compile"):
                open("stage", "w").write(stage)
                time.sleep(0.25)
    """
    ended = run(python(code), tmp_path, environment(), Limits(load_s=0.6))
    assert (ended.timed_out, ended.stage) == (True, Stage.LOAD)
    assert ended.wall_s < 3


def test_the_end_is_noticed_at_once(tmp_path):
    run(["true"], tmp_path, environment(), Limits())
    took = []
    for _ in range(5):
        start = time.perf_counter()
        run(["true"], tmp_path, environment(), Limits())
        took.append(time.perf_counter() - start)
    assert min(took) < 0.25  # about 0.05 s on an idle machine


# ------------------------------------------------------------------------------ memory
def test_the_peak_is_about_right_and_sums_over_descendants(tmp_path):
    code = """
        import os, time
        held = bytearray(b"x") * 100_000_000
        if os.fork() == 0:
            more = bytearray(b"y") * 150_000_000
        time.sleep(0.8)
    """
    ended = run(python(code), tmp_path, environment(), Limits())
    # A fork's pages are its parent's until written, but the kernel counts them for both.
    assert 250e6 < ended.peak_bytes < 400e6


def test_mapped_files_are_no_memory(tmp_path):
    (tmp_path / "weights").write_bytes(bytes(100_000_000))
    code = """
        import mmap, time
        mapped = mmap.mmap(open("weights", "rb").fileno(), 0, access=mmap.ACCESS_READ)
        total = sum(mapped[i] for i in range(0, len(mapped), 4096))
        time.sleep(0.4)
    """
    ended = run(python(code), tmp_path, environment(), Limits(memory_bytes=50_000_000))
    assert not ended.memory_exceeded
    assert ended.peak_bytes < 30e6


def test_address_space_is_not_limited(tmp_path):
    code = "import mmap; mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)"
    assert run(python(code), tmp_path, environment(), Limits(memory_bytes=100_000_000)).exit_status == 0


# ------------------------------------------------------------------------------ logs
def test_a_log_keeps_its_head_and_tail_and_says_what_it_dropped(tmp_path):
    code = "import sys; sys.stderr.write('HEAD' + 'x' * 1_000_000 + 'TAIL')"
    run(python(code), tmp_path, environment(), Limits(log_bytes=1000))
    log = (tmp_path / "stderr.log").read_text()
    assert log.startswith("HEADxxx")
    assert log.endswith("xxxTAIL")
    assert f"[doesitrun: {1_000_008 - 1000} bytes were dropped here]" in log
    assert len(log) < 1100
    assert (tmp_path / "stdout.log").read_bytes() == b""


@pytest.mark.parametrize("size", [0, 1, 499, 500, 501, 999, 1000])
def test_a_log_up_to_its_cap_is_kept_whole(tmp_path, size):
    run(python(f"print('x' * {size}, end='')"), tmp_path, environment(), Limits(log_bytes=1000))
    assert (tmp_path / "stdout.log").read_text() == "x" * size


def test_what_a_killed_child_printed_is_kept(tmp_path):
    code = "import os; print('last words'); os.kill(os.getpid(), 9)"
    run(python(code), tmp_path, environment(), Limits())
    assert read_log(tmp_path) == "last words"


def test_logs_stay_as_bytes_on_disk_and_are_read_with_replacements(tmp_path):
    run(python("import os; os.write(1, b'a\\xff\\n'); os.write(2, b'b\\xfe')"), tmp_path, environment(), Limits())
    assert (tmp_path / "stdout.log").read_bytes() == b"a\xff\n"
    assert read_log(tmp_path) == "a\ufffd\nb\ufffd"


def test_a_flood_leaves_the_harness_flat(tmp_path):
    before = psutil.Process().memory_info().rss
    start = time.monotonic()
    ended = run(["sh", "-c", "yes | head -c 300000000; yes | head -c 300000000 >&2"], tmp_path, environment(), Limits())
    assert ended.exit_status == 0
    assert psutil.Process().memory_info().rss - before < 20e6
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 17e6
    assert time.monotonic() - start < 20


def test_results_that_are_no_objects_are_none(tmp_path):
    assert read_result(tmp_path) is None
    for content in (b"", b"{", b"[]", b"\xff", b"null", b"[" * 100_000):
        (tmp_path / "result.json").write_bytes(content)
        assert read_result(tmp_path) is None
    (tmp_path / "result.json").write_bytes(b'{"top_logits": [NaN, -Infinity]}')
    assert set(read_result(tmp_path)) == {"top_logits"}


# ------------------------------------------------------------------------------ nothing is left
def harness(tmp_path: Path, mark: str, code: str) -> subprocess.Popen[str]:
    """Another harness that isolates `code`; returned when the child is ready."""
    program = f"""
        import os, sys
        from pathlib import Path
        from doesitrun.isolate import Limits, child_environment, run
        env = child_environment(os.environ, {{"ISOLATE_TEST": {mark!r}}}, keep_token=False)
        try:
            run([sys.executable, "-c", {code!r}], Path({str(tmp_path)!r}), env, Limits())
        except KeyboardInterrupt:
            print("interrupted")
    """
    process = subprocess.Popen(python(program), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    wait_until((tmp_path / "ready").exists)
    assert len(marked(mark)) >= 2
    return process


def test_ctrl_c_leaves_nothing_and_comes_through(tmp_path, mark):
    process = harness(tmp_path, mark, DAEMON)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10)[0] == "interrupted\n"
    assert marked(mark) == []


def test_a_sigkill_of_the_harness_leaves_nothing(tmp_path, mark):
    process = harness(tmp_path, mark, DAEMON)
    supervisor = psutil.Process(process.pid).children()[0]
    process.kill()
    process.communicate()
    wait_until(lambda: not marked(mark) and not supervisor.is_running())


def test_a_sigkill_of_the_supervisor_leaves_nothing(tmp_path, mark):
    def kill_supervisor(stage, elapsed_s):
        if (tmp_path / "ready").exists():
            for supervisor in psutil.Process().children():
                supervisor.kill()

    ended = run(python(DAEMON), tmp_path, environment(ISOLATE_TEST=mark), Limits(), kill_supervisor)
    assert (ended.exit_status, ended.signal, ended.timed_out) == (None, signal.SIGKILL, False)
    assert marked(mark) == []


def test_a_stopped_supervisor_is_got_rid_of(tmp_path, mark, monkeypatch):
    def stop_supervisor(stage, elapsed_s):
        if (tmp_path / "ready").exists():
            for supervisor in psutil.Process().children():
                supervisor.suspend()

    monkeypatch.setattr(isolate, "PATIENCE_S", 0.5)
    ended = run(python(DAEMON), tmp_path, environment(ISOLATE_TEST=mark), Limits(start_s=1.2), stop_supervisor)
    assert ended.signal == signal.SIGKILL
    assert ended.timed_out
    assert marked(mark) == []


def test_an_error_of_the_watcher_comes_through_and_leaves_nothing(tmp_path, mark):
    def fail(stage, elapsed_s):
        if (tmp_path / "ready").exists():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(python(DAEMON), tmp_path, environment(ISOLATE_TEST=mark), Limits(), fail)
    assert marked(mark) == []


def test_a_storm_of_forks_is_ended(tmp_path, mark):
    code = """
        import os, time
        for _ in range(10):
            if os.fork() == 0:
                os.setsid()
                if os.fork():
                    os._exit(0)
                while True:
                    time.sleep(0.01)
                    if os.fork() == 0:
                        time.sleep(0.05)
                        os._exit(0)
        time.sleep(600)
    """
    ended = run(python(code), tmp_path, environment(ISOLATE_TEST=mark), Limits(start_s=0.7))
    assert ended.timed_out
    assert marked(mark) == []


def test_no_descriptor_and_no_zombie_stays_in_the_harness(tmp_path):
    run(["true"], tmp_path, environment(), Limits())
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        run(["true"], tmp_path, environment(), Limits())
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert psutil.Process().children() == []


def test_children_side_by_side_do_not_hold_each_other(tmp_path):
    def one(n: int) -> isolate.Ended:
        code = f"import time; print({n}); time.sleep({0 if n % 2 else 600})"
        return run(python(code), tmp_path / str(n), environment(), Limits(start_s=1.0))

    with ThreadPoolExecutor(6) as pool:
        ends = list(pool.map(one, range(6)))
    assert [end.timed_out for end in ends] == [True, False] * 3
    assert max(end.wall_s for end in ends) < 5
    assert [read_log(tmp_path / str(n)) for n in range(6)] == [str(n) for n in range(6)]


# ------------------------------------------------------------------------------ scripts of a stack
def script(tmp_path: Path, code: str) -> Path:
    path = tmp_path / "probe.py"
    path.write_text(textwrap.dedent(code))
    return path


def test_a_script_answers_its_request(tmp_path):
    code = """
        import json, sys
        request = json.load(open(sys.argv[1]))
        json.dump({"twice": 2 * request["n"]}, open(sys.argv[2], "w"))
    """
    assert run_script(script(tmp_path, code), sys.executable, {"n": 21}, tmp_path / "x") == {"twice": 42}


@pytest.mark.parametrize(
    ("code", "limits", "sentence"),
    [
        ("raise ValueError('no such op')", Limits(), "probe failed with exit status 1: ValueError: no such op; see "),
        ("pass", Limits(), "probe left no answer; see "),
        ("import sys; open(sys.argv[2], 'w').write('[1]')", Limits(), "probe left no answer"),
        ("import os; os.kill(os.getpid(), 6)", Limits(), "probe was ended by signal 6"),
        (FOREVER, Limits(start_s=0.4), "probe took longer than 0.4 s"),
        ("x = bytearray(b'x') * 300_000_000\n" + FOREVER, Limits(memory_bytes=100_000_000), "probe took more than 0.1 GB of memory"),
    ],
)
def test_a_script_that_fails_is_one_sentence(tmp_path, code, limits, sentence):
    with pytest.raises(StackError) as error:
        run_script(script(tmp_path, code), sys.executable, {}, tmp_path / "x", limits=limits)
    assert sentence in str(error.value)


def test_an_answer_of_an_earlier_run_is_not_believed(tmp_path):
    (tmp_path / "answer.json").write_text('{"old": true}')
    with pytest.raises(StackError):
        run_script(script(tmp_path, "pass"), sys.executable, {}, tmp_path)
