"""Stacks, and what the doctor says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from doesitrun.doctor.visit import Report
from doesitrun.records import Stack, dumps
from doesitrun.screen.terminal import GB, console, fact_table, plain, seconds, short
from doesitrun.stacks import Surveyed
from doesitrun.targets.checks import Status as CheckStatus

STATUS_COLOURS = {
    CheckStatus.OK: "green",
    CheckStatus.WARNING: "bold yellow",
    CheckStatus.PROBLEM: "bold red",
    CheckStatus.UNKNOWN: "bold magenta",
}


def stack_json(surveyed: Surveyed) -> str:
    return dumps(
        {
            "name": surveyed.name,
            "python": surveyed.python,
            "problem": surveyed.problem,
            "stacks": [_stack_values(s) for s in surveyed.stacks],
        }
    )


def _stack_values(stack: Stack) -> dict[str, object]:
    values: dict[str, object] = json.loads(dumps(stack))
    return values


def show_stacks(found: Sequence[Surveyed]) -> None:
    """What each stack has, per target."""
    if not found:
        console().print(
            plain("No stack: this Python has no torch, and doesitrun.toml names none.\nGet one with: pip install 'doesitrun[stack]'")
        )
    for each in found:
        tables = [fact_table(_stack_facts(stack)) for stack in each.stacks]
        problem = [plain(each.problem)] if each.problem else []
        title = Text.assemble((each.name, "bold"), "  ", plain(each.python))
        console().print(Panel(Group(*tables, *problem), title=title, title_align="left"))


def _stack_facts(stack: Stack) -> list[tuple[str, Text]]:
    count = f"{stack.cores} core{'s' if stack.cores != 1 else ''}"
    facts = [
        ("target", f"{stack.target}: {count} of {stack.device or 'an unknown device'}"),
        ("compiler", f"{stack.compiler} {stack.compiler_version}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in stack.versions.items() if name != "os")),
        ("host", f"{stack.versions.get('os')}, {stack.host_memory_bytes / GB:.0f} GB of memory"),
        ("notes", "\n".join(stack.notes)),
    ]
    return [(name, plain(value)) for name, value in facts if value]


def show_report(report: Report, path: Path | None, *, as_json: bool) -> None:
    """What `doctor` found in one stack, what to do, and the answers, if questions were asked."""
    if as_json:
        print(dumps(report))
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in report.checks:
        said = Text.assemble(plain(check.found), ("\n-> " if check.advice else ""), plain(check.advice))
        table.add_row(Text(check.status.value, STATUS_COLOURS[check.status]), plain(check.name), said)
    where = f"{report.target} on {report.device}" if report.device else report.target
    title = Text.assemble((report.stack, "bold"), "  ", plain(where), "  EMULATED" if report.emulated else "")
    console().print(Panel(Group(table, *_answers(report)), title=title, title_align="left"))
    if path is not None:
        console().print(plain(f"The answers, and what ran: {short(path)}"), soft_wrap=True)
    elif report.open_questions:
        console().print(plain(f"Small real runs can answer: {', '.join(report.open_questions)}. Ask them with --examine."), soft_wrap=True)


def _answers(report: Report) -> list[Text | Table]:
    if not report.answers:
        return []
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for each in report.answers:
        unproved = " (emulated: not proved for the real device)" if each.emulated else ""
        said = plain(each.answer) if each.answer else Text.assemble(("not answered: ", "bold magenta"), plain(each.why_not))
        table.add_row(plain(each.id), Text.assemble(plain(each.question), "\n", said, (unproved, "dim"), f"  [{seconds(each.seconds)}]"))
    return [Text("\nOpen questions", "bold"), table]
