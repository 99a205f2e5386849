"""Looking up from the outside: the commands, a dataset on the Hub, and data that change while they are served."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import pytest
from tests.hub_server import Fault, Hub
from tests.hub_server.repos import File
from tests.pure.published import OLD, forecast, plan, publish, rank, row

from doesitrun.catalog import Query, find, open_data
from doesitrun.outcomes import Reason, Result

PASS, FAIL, EXCLUDED = Result.PASS, Result.FAIL, Result.EXCLUDED
HOSTILE = "org/<script>[bold]x[/bold]\x1b[31m\0\u202e"
ERROR = "RuntimeError: [red]no markup[/red] \x1b[2J\0 " + "y" * 100_000 + " the end"


def doesitrun(*arguments: str | Path, data: Path | str, status: int = 0, **environment: str) -> str:
    """What the command prints."""
    variables = {**os.environ, "DOESITRUN_DATA": str(data), "COLUMNS": "200", **environment}
    done = subprocess.run(
        [sys.executable, "-m", "doesitrun", *arguments], env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == status, done.stderr
    return done.stdout + (done.stderr if status else "")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rows = [
        row("Qwen/Qwen3-0.6B", run_py="print('it ran')\n", wall_s=61, hbm_peak_gb=1.5),
        row("Qwen/Qwen3-0.6B", FAIL, OLD),
        row("Qwen/Qwen3-4B", FAIL, error=ERROR),
        row(HOSTILE, EXCLUDED, reason=Reason.GATED, exclusion="[link=http://x]y[/link]"),
    ]
    rank(publish(folder, rows), "Qwen/Qwen3-0.6B", "meta/planned")
    plan(folder, forecast("meta/planned"))
    return folder


# ---------------------------------------------------------------------------------- the commands
def test_lookup_prints_lines_for_people_and_for_programs(data: Path) -> None:
    text = doesitrun("lookup", "qwen", data=data)
    assert "Qwen/Qwen3-0.6B" in text
    assert "2 (1 PASS, 1 FAIL)" in text
    found = [json.loads(line) for line in doesitrun("lookup", "qwen", "--json", "--sort", "model_id", data=data).splitlines()]
    assert [(line["model_id"], line["result"], line["kind"]) for line in found] == [
        ("Qwen/Qwen3-0.6B", "PASS", "result"),
        ("Qwen/Qwen3-4B", "FAIL", "result"),
    ]
    assert "forecast" in doesitrun("lookup", "--view", "trending", "--result", "untested", data=data)
    assert "There is no --sort 'best'" in doesitrun("lookup", "--sort", "best", data=data, status=2)
    assert "There is no" in doesitrun("lookup", data=data / "absent", status=6)


def test_text_from_outside_is_printed_and_never_obeyed(data: Path) -> None:
    for command in (["lookup", "script"], ["show", "Qwen/Qwen3-4B"], ["show", "Qwen/Qwen3-4B", "--json"]):
        printed = doesitrun(*command, data=data)
        assert "\x1b" not in printed
        assert "\0" not in printed
    assert "[bold]x[/bold]" in doesitrun("lookup", "script", data=data)
    page = json.loads(doesitrun("show", "Qwen/Qwen3-4B", "--json", data=data))
    assert page["failure"]["text"] == ERROR
    shown = doesitrun("show", "Qwen/Qwen3-4B", data=data)
    assert "[red]no markup[/red]" in shown
    assert sum(line.count("y") for line in shown.splitlines()) >= 100_000


def test_show_tells_the_page_and_the_script(data: Path) -> None:
    text = doesitrun("show", "Qwen/Qwen3-0.6B", data=data, COLUMNS="60")
    for part in ("PASS", "It runs since neuronx-cc 2.28.0.0", "pip install", "--run-py > run.py", "61 s"):
        assert part in text
    (command,) = [line.strip() for line in text.splitlines() if "--run-py" in line]  # in one line, however narrow the terminal
    words = shlex.split(command.partition(" show ")[2].partition(" > ")[0])
    assert doesitrun("show", *words, data="elsewhere") == "print('it ran')\n"
    assert doesitrun("show", "Qwen/Qwen3-0.6B", "--run-py", data=data) == "print('it ran')\n"
    assert "FAIL" in doesitrun("show", "Qwen/Qwen3-0.6B", "--compiler", OLD[0], data=data)
    assert "Forecast" in doesitrun("show", "meta/planned", data=data)
    assert "Did you mean Qwen/Qwen3-0.6B" in doesitrun("show", "qwen3-0.6b", data=data, status=3)


def test_compare_counts_and_names_what_changed(data: Path) -> None:
    text = doesitrun("compare", OLD[0], "2.28", data=data)
    assert "1 fixed, 0 broken" in text
    found = json.loads(doesitrun("compare", OLD[0], "2.28", "--json", data=data))
    assert found["counts"]["fixed"] == 1
    assert found["counts"]["new"] == 2
    assert found["before"] == "neuron/neuronx-cc-2.27.1.0/transformers-5.23.0"
    assert "name one of neuron/" in doesitrun("compare", "9.9", "2.28", data=data, status=2)


# ---------------------------------------------------------------------------------- the Hub
def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


def looked_up(hub: Hub, home: Path, *arguments: str, status: int = 0) -> str:
    return doesitrun("lookup", *arguments, data="hf://datasets/org/results", status=status, **hub.environment(home))


def test_a_dataset_on_the_hub_is_looked_up_like_a_folder(hub: Hub, data: Path, tmp_path: Path) -> None:
    hub.add("dataset", "org/results", {**files_of(data), "README.md": b"a card", "rankings/2025-01-01.parquet": b"old and never fetched"})
    assert "Qwen/Qwen3-0.6B" in looked_up(hub, tmp_path, "qwen")
    assert "meta/planned" in looked_up(hub, tmp_path, "--view", "trending")
    asked = [each.path for each in hub.asked]
    assert not [path for path in asked if "README.md" in path]


def test_only_what_changed_on_the_hub_is_fetched_again(hub: Hub, tmp_path: Path) -> None:
    """In one process, as a server does it; a failing Hub leaves the old data up."""
    folder = publish(tmp_path / "d", [row("m/a"), row("m/b", versions=OLD)])
    repo = hub.add("dataset", "org/results", files_of(folder))
    with Looker(hub, tmp_path / "home") as looker:
        first, _ = looker.look()
        assert first == {"lines": {"m/a": "PASS", "m/b": "PASS"}, "notices": 0, "version": 1}
        again, asked = looker.look()
        assert again == first
        assert len(asked) == 1
        publish(folder, [row("m/a", FAIL), row("m/c")])
        repo.commit({path: File.of(path, content) for path, content in files_of(folder).items()}, "new results")
        changed, asked = looker.look()
        assert changed["lines"] == {"m/a": "FAIL", "m/b": "PASS", "m/c": "PASS"}
        assert not [path for path in asked if "5.23.0" in path]
        hub.fail(Fault(".*", status=500, times=100))
        kept, _ = looker.look()
        assert (kept["lines"], kept["notices"]) == (changed["lines"], 1)


class Looker:
    """A process that opens the dataset once, and looks at it whenever it is told to."""

    def __init__(self, hub: Hub, home: Path) -> None:
        self.hub = hub
        command = [sys.executable, "-c", SERVER, "hf://datasets/org/results"]
        self.child = subprocess.Popen(
            command, env={**os.environ, **hub.environment(home)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.communicate(timeout=30)

    def look(self) -> tuple[Any, list[str]]:
        """What it sees, and the addresses that it asked for."""
        before = len(self.hub.asked)
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        print(file=self.child.stdin, flush=True)
        answer = json.loads(self.child.stdout.readline())
        return answer, [each.path for each in self.hub.asked[before:] if each.method == "GET"]


SERVER = """
import json, sys
from doesitrun.catalog import Query, find, open_data
source = open_data(sys.argv[1], every_s=0)
for _ in sys.stdin:
    data = source.refresh()
    lines = {line.model_id: line.result for line in find(data, Query()).lines}
    print(json.dumps({"lines": lines, "notices": len(data.notices), "version": data.version}), flush=True)
"""


@pytest.mark.parametrize(("name", "status", "words"), [("org/nothing", 4, "no dataset org/nothing"), ("org", 2, "hf://datasets/ORG/NAME")])
def test_what_is_not_on_the_hub_is_one_sentence(hub: Hub, tmp_path: Path, name: str, status: int, words: str) -> None:
    assert words in doesitrun("lookup", data=f"hf://datasets/{name}", status=status, **hub.environment(tmp_path))


# ---------------------------------------------------------------------------------- while it is served
def test_readers_never_see_a_mixture_while_files_are_replaced(tmp_path: Path) -> None:
    """Every row of a file is of one edition; readers in threads see whole editions only, and at the end the last one."""
    editions = 12

    def edition(number: int) -> None:
        publish(tmp_path, [row(f"m/{n}", wall_s=number, run_py=f"# {number}\n") for n in range(200)])

    edition(0)
    source = open_data(tmp_path, every_s=0)
    stop = threading.Event()
    problems: list[str] = []

    def read() -> None:
        while not stop.is_set():
            found = {line.wall_s for line in find(source.current(), Query(limit=200)).lines}
            if len(found) != 1:
                problems.append(f"a mixture: {found}")

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for number in range(1, editions):
        edition(number)
        time.sleep(0.02)
    time.sleep(0.05)
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []
    assert find(source.refresh(), Query()).lines[0].wall_s == editions - 1


def test_a_file_that_is_being_copied_is_shown_when_it_is_whole(tmp_path: Path) -> None:
    whole = next(publish(tmp_path / "there", [row("m/a", FAIL), row("m/b")]).rglob("*.parquet"))
    here = next(publish(tmp_path / "here", [row("m/a")]).rglob("*.parquet"))
    source = open_data(tmp_path / "here")
    content = whole.read_bytes()
    with here.open("wb") as file:  # in place, as a plain copy does it
        for start in range(0, len(content), len(content) // 5):
            file.write(content[start : start + len(content) // 5])
            file.flush()
            data = source.refresh()
            if file.tell() < len(content):
                assert [line.result for line in find(data, Query(text="m/a")).lines] == ["PASS"]
                assert data.notices
    data = source.refresh()
    assert {line.model_id: line.result for line in find(data, Query()).lines} == {"m/a": "FAIL", "m/b": "PASS"}
    assert data.notices == ()
