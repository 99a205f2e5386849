"""A campaign while it goes on: a live view in a terminal, a line per event elsewhere, JSON for programs."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from doesitrun.campaign.events import Began, Ended, Event, Listen, Planned, Planning, Stepped, Summed, Ticked
from doesitrun.campaign.many import Summary
from doesitrun.outcomes import Result
from doesitrun.records import dumps
from doesitrun.screen.progress import STEPS
from doesitrun.screen.terminal import COLOURS, plain, seconds

SHOWN = 20
"""Running models in the live view; the others are counted."""
TICK_S = 5.0
"""Seconds between two `ticked` events for programs."""
REPORT_S = 60.0
"""Seconds between two lines on how it stands, where there is no terminal."""


@contextmanager
def campaign_screen(*, as_json: bool) -> Iterator[Listen]:
    """What hears a campaign's events. Programs get them on stdout, one JSON object a line; people see them on stderr."""
    screen = Console(stderr=True, highlight=False)
    if as_json:
        out = sys.stdout
        with redirect_stdout(sys.stderr):  # Ray tells of lost nodes on stdout
            yield _Objects(out)
    elif screen.is_terminal:
        with Live(console=screen, refresh_per_second=4, transient=True) as live:
            board = _Board(live)
            yield board
    else:
        yield _Lines(screen)


def show_summary(summary: Summary, *, as_json: bool) -> None:
    """The counts of every stack, which add up, and whether anything is left to do."""
    if as_json:
        return  # they were events
    screen = Console(highlight=False)
    for name, counts in summary.counts.items():
        screen.print(plain(f"{name}: {counts}"), soft_wrap=True)
        if not counts.planned:
            screen.print(Text("Nothing was planned: this campaign tested nothing.", "bold red"))
        elif not counts.is_complete:
            screen.print(Text(f"This is a part only: {counts.pending} have no row yet. Call it again, and it goes on.", "bold red"))
        elif counts.inconclusive:
            screen.print(plain(f"{counts.inconclusive} are undecided: the same command tries them again, and only them."))


class _Objects:
    """A JSON object a line per event; how it stands only now and then."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.told_s = -math.inf

    def __call__(self, event: Event) -> None:
        if isinstance(event, Ticked):
            if time.monotonic() - self.told_s < TICK_S and event.left:
                return
            self.told_s = time.monotonic()
        print(_json(event), file=self.out, flush=True)


def _json(event: Event) -> str:
    if isinstance(event, Summed):
        counts = dataclasses.asdict(event.counts)
        return dumps({"event": "summed", "stack": event.stack, **counts, "complete": event.counts.is_complete})
    return dumps({"event": type(event).__name__.lower(), **dataclasses.asdict(event)})


class _Lines:
    """A line per event that matters."""

    def __init__(self, screen: Console) -> None:
        self.screen = screen
        self.reported_s = time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Ticked):
            if time.monotonic() - self.reported_s < REPORT_S:
                return
            self.reported_s = time.monotonic()
        line = _line(event)
        if line is not None:
            self.screen.print(line, soft_wrap=True)


def _line(event: Event) -> Text | None:
    match event:
        case Planned():
            return plain(
                f"{event.stack}: {event.planned} planned, {event.settled} of them settled earlier,"
                f" {event.refused} refused now, {event.to_run} to run"
            )
        case Began():
            again = f", try {event.attempt}" if event.attempt > 1 else ""
            return plain(f"  start  {event.model} on {_cores(event.cores)} of {event.place}{again}")
        case Ended():
            return _ended(event)
        case Ticked():
            return plain(f"  {_standing(event)}")
        case _:
            return None


def _ended(event: Ended) -> Text:
    why = f" {event.reason}" if event.reason else ""
    again = ", to be tried again at the end" if event.again else ""
    result = Text(f"  {event.result.value:<12} ", COLOURS[event.result])
    return result + plain(f"{event.model}{why}, {seconds(event.wall_s)}{again}")


def _standing(event: Ticked) -> str:
    if event.remaining_s is None:
        left = ""
    else:
        left = f", about {seconds(event.remaining_s)} to go, until {datetime.now() + timedelta(seconds=event.remaining_s):%H:%M}"
    return f"{event.busy} of {event.cores} cores busy, {event.done} done, {event.left} left{left}"


def _cores(cores: tuple[int, ...]) -> str:
    if not cores:
        return "the processor"
    return f"core {cores[0]}" if len(cores) == 1 else f"cores {cores[0]}-{cores[-1]}"


@dataclass
class _Running:
    began: Began
    since_s: float = field(default_factory=time.monotonic)
    step: str = "start"


@dataclass
class _Board:
    """The live view: what runs, what is done, what is left."""

    live: Live
    running: dict[str, _Running] = field(default_factory=dict)
    results: Counter[Result] = field(default_factory=Counter)
    standing: str = ""

    def __call__(self, event: Event) -> None:
        match event:
            case Planning():
                self.standing = f"{event.stack}: {event.done} of {event.total} planned"
            case Began():
                self.running[event.key] = _Running(event)
            case Stepped() if event.key in self.running:
                self.running[event.key].step = event.step
            case Ended():
                self.running.pop(event.key, None)
                self.results[event.result] += not event.again
                self.live.console.print(_ended(event))
            case Ticked():
                self.standing = _standing(event)
            case Planned():
                self.live.console.print(_line(event) or "")
            case _:
                pass
        self.live.update(self._view())

    def _view(self) -> Group:
        table = Table.grid(padding=(0, 2))
        now = time.monotonic()
        for each in list(self.running.values())[:SHOWN]:
            table.add_row(
                plain(f"  {each.began.model}"),
                plain(_cores(each.began.cores)),
                plain(STEPS.get(each.step, each.step)),
                plain(seconds(now - each.since_s)),
            )
        more = len(self.running) - SHOWN
        results = "  ".join(f"{count} {result.value}" for result, count in self.results.items() if count)
        return Group(table, plain(f"  and {more} more" if more > 0 else ""), plain(f"{self.standing}   {results}"))
