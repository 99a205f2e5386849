"""A campaign as people and programs see it; names from outside are shown, never obeyed."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from rich.live import Live

from doesitrun.campaign import Summary
from doesitrun.campaign.events import Began, Ended, Event, Planned, Planning, Stepped, Summed, Ticked
from doesitrun.outcomes import Reason, Result
from doesitrun.screen import campaign_screen, campaigns, show_summary
from doesitrun.store.accounts import Counts

NAME = "org/[red]a[/red]\x1b[31m"
COUNTS = Counts(4, 1, 1, 1, 1, 0)
EVENTS: tuple[Event, ...] = (
    Planning("default (cpu)", 2, 4),
    Planned("default (cpu)", 4, 0, 1, 3),
    Began("k", NAME, "here", (4, 5, 6, 7), 2),
    Stepped("k", "compile"),
    Ticked(4, 8, 1, 2, 90.0),
    Ticked(4, 8, 1, 2, 89.5),
    Ended("k", NAME, Result.FAIL, Reason.CRASH, 61.0, again=False),
    Ended("l", "org/b", Result.INCONCLUSIVE, Reason.NETWORK, 1.0, again=True),
    Summed("default (cpu)", COUNTS),
)


def test_programs_get_every_event_as_one_json_object_a_line_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with campaign_screen(as_json=True) as listen:
        for event in EVENTS:
            listen(event)
        print("(raylet) a node was lost")
    out, err = capsys.readouterr()
    told = [json.loads(line) for line in out.splitlines()]
    assert [each["event"] for each in told] == ["planning", "planned", "began", "stepped", "ticked", "ended", "ended", "summed"]
    assert told[2]["model"] == NAME
    assert told[2]["cores"] == [4, 5, 6, 7]
    assert (told[5]["result"], told[5]["reason"]) == ("FAIL", "crash")
    assert {"planned": 4, "passed": 1, "pending": 0, "complete": True}.items() <= told[-1].items()
    assert err == "(raylet) a node was lost\n"


def test_without_a_terminal_there_is_a_line_per_event_that_matters(capsys: pytest.CaptureFixture[str]) -> None:
    with campaign_screen(as_json=False) as listen:
        for event in EVENTS:
            listen(event)
    out, err = capsys.readouterr()
    assert out == ""
    assert "4 planned, 0 of them settled earlier, 1 refused now, 3 to run" in err
    assert "start  org/[red]a[/red]\\x1b[31m on cores 4-7 of here, try 2" in err
    assert "FAIL         org/[red]a[/red]\\x1b[31m crash, 1 min 01 s" in err
    assert "org/b network, 1.0 s, to be tried again at the end" in err
    assert "\x1b" not in err


def test_the_live_view_shows_cores_stages_and_the_expected_end() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120, height=30, color_system=None)
    board = campaigns._Board(Live(console=console))
    for event in EVENTS[:6]:
        board(event)
    console.print(board._view())
    text = shown.getvalue()
    assert "org/[red]a[/red]\\x1b[31m" in text
    assert "cores 4-7" in text
    assert "first pass, which compiles" in text
    assert "4 of 8 cores busy, 1 done, 2 left, about 1 min 29 s to go, until" in text
    for event in EVENTS[6:]:
        board(event)
    shown.seek(0)
    shown.truncate()
    console.print(board._view())
    assert "cores 4-7" not in shown.getvalue()
    assert "1 FAIL" in shown.getvalue()
    assert "INCONCLUSIVE" not in shown.getvalue(), "it will be tried again"


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        (COUNTS, "1 are undecided"),
        (Counts(4, 1, 1, 1, 0, 1), "This is a part only: 1 have no row yet"),
        (Counts(0, 0, 0, 0, 0, 0), "Nothing was planned: this campaign tested nothing."),
    ],
)
def test_what_is_not_whole_says_so(counts: Counts, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """H11 and H15: parts and empty runs used to look like results."""
    show_summary(Summary({"default (cpu)": counts}), as_json=False)
    out = capsys.readouterr().out
    assert str(counts) in out
    assert says in out
