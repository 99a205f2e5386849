"""Python errors in a log: which process raised what, in the order in which they appeared. Pure text.

Several processes may write to one log. Their lines are told apart by what torch and multiprocessing put there:
a `[rank1]:` before each line, a `Process SpawnProcess-2:` or `-- Process 1 terminated with the following error:`
above a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LABEL = re.compile(r"Process (?P<name>\w+-\d+):\s*|-- Process (?P<index>\d+) terminated with .*")
RANK_PREFIX = re.compile(r"\[(?:default\d+\]:)?\[?rank\s?(?P<rank>\d+)\]:? ?")
START = re.compile(r"Traceback \(most recent call last\):")
CHAINED = re.compile(r"During handling of the above exception|The above exception was the direct cause")
IGNORED = re.compile(r"Exception ignored in|Exception in thread|^\s*--- Logging error ---")
HEADLINE = re.compile(r"[A-Za-z_][\w.]*(: .*|:?\s*)")
WRAPPER = re.compile(r"(torch\.multiprocessing\.spawn\.)?(ProcessRaisedException)|.*ChildFailedError")
HEADLINE_CHARACTERS = 500
IGNORED_LINES = 3
"""A traceback this close below an announcement that its exception was ignored is that exception's."""


@dataclass(frozen=True)
class Failure:
    """One process's error, chained ones in one piece."""

    process: str | None
    """Label of the process; None for the one that was started, or when the log does not say."""
    line: int
    """Where in the log its last traceback begins."""
    headline: str
    """The last exception, as Python prints it: `type: message`."""
    message: str
    """What its exceptions say, chained ones too: everything but the frames."""
    text: str
    """Frames and messages."""


@dataclass(frozen=True)
class _Block:
    """One traceback, or a text between two."""

    process: str | None
    line: int
    lines: tuple[str, ...]
    is_chained: bool
    is_ignored: bool


def failures(log: str) -> list[Failure]:
    """The errors of a log in order. An exception in a thread, or while Python ended, is none: nobody ended by it."""
    found: list[Failure] = []
    for block in sorted(_blocks(log), key=lambda block: block.line):
        place = _headline(block.lines)
        if block.is_ignored or place is None:
            continue
        message, text = "\n".join(block.lines[place:]), "\n".join(block.lines)
        if block.is_chained:
            former = next((i for i in reversed(range(len(found))) if found[i].process == block.process), None)
            if former is not None:
                chained = found.pop(former)
                message, text = f"{chained.message}\n{message}", f"{chained.text}\n{text}"
        headline = block.lines[place].rstrip()[:HEADLINE_CHARACTERS]
        found.append(Failure(block.process, block.line, headline, message, text))
    return found


def first_failure(found: list[Failure], noise: re.Pattern[str] | None = None) -> Failure | None:
    """The cause: the last error of the first process that failed, but for those whose headline is `noise`.

    A process may log an error and go on, so only its last one counts. Workers come before the process that started
    them, which only passes on what it was told.
    """
    last = {failure.process: failure for failure in found if not _is_noise(failure, noise)}
    workers = sorted((f for f in last.values() if f.process is not None), key=lambda f: f.line)
    starter = last.get(None)
    return workers[0] if workers else starter


def _is_noise(failure: Failure, noise: re.Pattern[str] | None) -> bool:
    return WRAPPER.match(failure.headline) is not None or (noise is not None and noise.search(failure.headline) is not None)


def _blocks(log: str) -> Iterator[_Block]:
    """Tracebacks with the text after each, told apart by process."""
    streams: dict[str | None, list[tuple[int, str]]] = {}
    for number, line in enumerate(log.split("\n")):
        prefix = RANK_PREFIX.match(line)
        label = None if prefix is None else f"rank {prefix['rank']}"
        streams.setdefault(label, []).append((number, line if prefix is None else line[prefix.end() :]))
    for label, lines in streams.items():
        yield from _stream_blocks(label, lines)


def _stream_blocks(label: str | None, lines: list[tuple[int, str]]) -> Iterator[_Block]:
    process, is_chained, ignored_at = label, False, -IGNORED_LINES - 1
    begun: int | None = None
    held: list[str] = []
    for number, (place, line) in enumerate(lines):
        named = LABEL.fullmatch(line.strip())
        starts, chains, ignores = (sign.search(line) is not None for sign in (START, CHAINED, IGNORED))
        if begun is not None and (starts or named or chains or ignores):
            yield _Block(process, begun, tuple(held), is_chained, ignored_at >= 0)
            begun, is_chained, ignored_at = None, False, -IGNORED_LINES - 1
            process = process if chains else label
        if named:
            process = f"process {named['name'] or named['index']}"
        elif starts:
            begun, held = place, []
            ignored_at = ignored_at if number - ignored_at <= IGNORED_LINES else -1
        elif begun is None:
            is_chained = is_chained or chains
            ignored_at = number if ignores else ignored_at
        if begun is not None:
            held.append(line)
    if begun is not None:
        yield _Block(process, begun, tuple(held), is_chained, ignored_at >= 0)


def _headline(lines: tuple[str, ...]) -> int | None:
    """Where the first line after the frames stands that reads like `type: message`."""
    for place, line in enumerate(lines[1:], 1):
        if line and not line[0].isspace() and HEADLINE.fullmatch(line):
            return place
    return None
