"""What is being done, on stderr; silent for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status
from rich.text import Text

from doesitrun.screen.terminal import plain, seconds

if TYPE_CHECKING:
    from doesitrun.campaign import Progress, Watch

STEPS = {
    "plan": "planning",
    "start": "starting Python",
    "load": "loading the weights",
    "compile": "first pass, which compiles",
    "run": "second pass, warm",
    "exit": "ending",
    "reference": "CPU reference",
    "judge": "reading the text",
    "oracle": "the same layout on CPU ranks",
    "graphs": "asking the store for compiled graphs",
    "push": "pushing compiled graphs",
    "pull": "pulling compiled graphs",
    "unpack": "unpacking the demo model",
}


@dataclass
class Display:
    """Shows steps as they go: a live line in a terminal, a line per step elsewhere."""

    screen: Console
    status: Status | None = None
    last: Progress | None = None
    done: list[Progress] = field(default_factory=list)

    def __call__(self, progress: Progress) -> None:
        if self.last is not None and self.last.step != progress.step:
            self._finish(self.last)
        if self.status is not None:
            self.status.update(_line(progress))
        elif self.last is None or self.last.step != progress.step:
            self.screen.print(Text(f"  {STEPS.get(progress.step, progress.step)} ..."))
        self.last = progress

    def _finish(self, progress: Progress) -> None:
        if self.status is not None and progress.elapsed_s >= 0.5:
            self.screen.print(
                Text.assemble(("  done  ", "green"), f"{STEPS.get(progress.step, progress.step)}, {seconds(progress.elapsed_s)}")
            )

    def close(self) -> None:
        if self.last is not None:
            self._finish(self.last)


def step_of(watch: Watch) -> Callable[[str], None]:
    """`watch` for what says only what it does, and not for how long."""
    from doesitrun.campaign import Progress

    return lambda step: watch(Progress(step, 0.0))


def _line(progress: Progress) -> Text:
    if not progress.elapsed_s:
        return Text(STEPS.get(progress.step, progress.step))
    expected = f" of about {seconds(progress.expected_s)}" if progress.expected_s else ""
    return Text(f"{STEPS.get(progress.step, progress.step)}, {seconds(progress.elapsed_s)}{expected}")


@contextmanager
def progress(*, as_json: bool) -> Iterator[Watch]:
    """What `campaign` reports to, on stderr; silent for programs."""
    screen = Console(stderr=True, highlight=False)
    if as_json:
        yield lambda _: None
    elif screen.is_terminal:
        with Status(Text("starting"), console=screen) as status:
            display = Display(screen, status)
            yield display
            display.close()
    else:
        yield Display(screen)


def announce(sentence: str) -> None:
    """A sentence between the steps."""
    Console(stderr=True, highlight=False).print(plain(sentence), style="bold")


def warn(sentence: str) -> None:
    """What the user should know, on stderr."""
    Console(stderr=True, highlight=False).print(Text.assemble(("note: ", "yellow"), plain(sentence)))
