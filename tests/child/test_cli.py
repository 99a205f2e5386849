"""The command as a user calls it: help that teaches, errors of one sentence, codes by class, documentation that matches."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import REPOSITORY

from doesitrun.cli import app
from doesitrun.errors import EXIT_CODES, EXIT_DISAGREES, DoesItRunError

COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]


def call(*arguments: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "doesitrun", *map(str, arguments)]
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment}
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd, env=env)


def test_help_names_every_command() -> None:
    shown = call("--help").stdout
    assert all(re.search(rf"^  {command} +\w", shown, re.MULTILINE) for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(command: str) -> None:
    assert f"| `{command}" in (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_exit_code_is_documented() -> None:
    table = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8").partition("## Exit codes")[2].partition("##")[0]
    documented = {int(code) for cell in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in cell.split(",")}
    assert documented == {*EXIT_CODES.values(), *(kind.exit_code for kind in DoesItRunError.__subclasses__()), 1, EXIT_DISAGREES, 130}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["tset"], 2, "Did you mean 'test'"),
        (["test"], 2, "Missing argument"),
        (["test", "."], 6, "workspace"),
        (["test", "org/na--me"], 2, "id"),
        (["test", "../nothing"], 3, "no folder"),
        (["test", ".", "--stack", "mine"], 2, "no stack"),
        (["test", ".", "--target", "tpu"], 2, "neuron, cuda, cpu"),
        (["test", ".", "--config", "none.toml"], 2, "--config"),
        (["plan", ".", "--device", "trn9"], 2, "trn2"),
        (["explain", "nothing.log"], 2, "nothing.log"),
        (["test", ".", "--stack", "a", "--config", "odd.toml"], 2, "no target 'zz'"),
        (["test", "no\x1b[31mthing"], 2, "no\\x1b[31mthing"),
    ],
)
def test_an_error_is_one_sentence_with_a_code_of_its_class(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    if code == 6:
        (tmp_path / "results").write_text("a file where the workspace belongs")
    (tmp_path / "odd.toml").write_text(f'[stacks.a]\npython = "{sys.executable}"\ntarget = "zz"\n')
    done = call(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_output_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("ValueError: x\n")
    with Path("/dev/full").open("w") as full:
        argv = [sys.executable, "-m", "doesitrun", "explain", "log", "--json"]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_a_log_that_explains_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("all is well\n")
    assert "Nothing in this log explains a failure" in call("explain", "log", cwd=tmp_path).stdout


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    assert "Traceback" in call("--debug", "test", "../nothing", cwd=tmp_path).stderr


def test_control_codes_in_a_log_do_not_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("RuntimeError: \x1b[31mred [bold]\x07 NCC_EVRF001\n")
    shown = call("explain", "log", cwd=tmp_path).stdout
    assert "\x1b[31m" not in shown
    assert "\x07" not in shown
    assert "[bold]" in shown


def test_json_is_one_value_per_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    (line,) = call("explain", "log", "--target", "cuda", "--json", cwd=tmp_path).stdout.splitlines()
    assert (json.loads(line)["reason"], json.loads(line)["result"]) == ("device_oom", "FAIL")
