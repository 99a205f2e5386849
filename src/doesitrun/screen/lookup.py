"""What was looked up: lines of a view, a model's page, two pairs side by side."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from doesitrun.outcomes import Result
from doesitrun.screen.progress import warn
from doesitrun.screen.terminal import COLOURS, console, fact_table, plain, program

if TYPE_CHECKING:
    from doesitrun.catalog import Change, Comparison, Evidence, Found, History, Line, Page, Suggestion

SHOWN_NAME = 160
WIDE = 110
"""Columns of a terminal that hold the whole table."""
_CHANGE_COLOURS = {"broken": "bold red", "fixed": "bold green", "slower": "yellow", "faster": "green"}


def show_notices(notices: Iterable[str]) -> None:
    """What could not be read, on stderr."""
    for notice in notices:
        warn(notice)


def show_found(found: Found, *, offset: int, as_json: bool) -> None:
    """Lines as a table and how many there are in all, or one line of JSON each."""
    from doesitrun.catalog import as_json as to_json

    if as_json:
        for line in found.lines:
            print(json.dumps(to_json(line), ensure_ascii=False))
        return
    if found.lines:
        console().print(_lines_table(found.lines))
    print(_counted(found, offset) if found.total else found.advice, file=sys.stderr if not found.total else sys.stdout)


def _counted(found: Found, offset: int) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    shown = f"{offset + 1}-{offset + len(found.lines)} of " if len(found.lines) < found.total else ""
    more = f"; --offset {offset + len(found.lines)} shows more" if offset + len(found.lines) < found.total else ""
    return f"{shown}{found.total} ({counts}){more}"


def _lines_table(lines: Sequence[Line]) -> Table:
    """The lines as a table; a narrow terminal gets the columns that answer the question, and `show` has the others."""
    targets = len({line.target for line in lines if line.result}) > 1
    columns: dict[str, list[Text]] = {
        "#": [plain(line.rank) for line in lines],
        "model": [_name(line.model_id) for line in lines],
        "result": [_result(line) for line in lines],
        "cores": [plain(line.cores if line.result else line.forecast and line.forecast.cores) for line in lines],
        "wall s": [plain(line.wall_s) for line in lines],
        "peak GB": [plain("" if line.peak_gb is None else f"{line.peak_gb:.2f}") for line in lines],
        "rests on, or why not": [plain(line.why or ", ".join(line.rests_on)) for line in lines],
        "versions": [plain(f"{line.target} {_versions(line)}".strip() if targets else _versions(line)) for line in lines],
        "tested": [plain(line.tested_at.date().isoformat() if line.tested_at else "") for line in lines],
    }
    left_out = [*(() if any(line.rank is not None for line in lines) else ("#",))]
    if console().width < WIDE:
        left_out += ["peak GB", "versions", "tested"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for name in columns:
        if name not in left_out:
            right = name in ("#", "cores", "wall s", "peak GB")
            table.add_column(name, justify="right" if right else "left", no_wrap=right or name in ("result", "tested"), overflow="fold")
    for cells in zip(*(cells for name, cells in columns.items() if name not in left_out), strict=True):
        table.add_row(*cells)
    return table


def _name(name: str) -> Text:
    return plain(name if len(name) <= SHOWN_NAME else f"{name[:SHOWN_NAME]}...")


def _result(line: Line) -> Text:
    if line.result:
        return Text(line.result, _colour(line.result))
    return Text("forecast" if line.forecast else "untested", "dim")


def _colour(result: str) -> str:
    return next((colour for known, colour in COLOURS.items() if known.value == result), "")


def _versions(line: Line) -> str:
    return " / ".join(part for part in (line.compiler_version, line.library_version) if part)


# ---------------------------------------------------------------------------------- a model's page
def show_page(page: Page, place: str, *, as_json: bool) -> None:
    """A model's page as text, or as one line of JSON."""
    from doesitrun.catalog import as_json as to_json

    if as_json:
        print(json.dumps(to_json(page), ensure_ascii=False))
        return
    line = page.line
    title = Text.assemble(_result(line), "  ", _name(page.model_id))
    parts = [fact_table(_page_facts(page)), *_sections(page)]
    console().print(Panel(Group(*parts), title=title, title_align="left"))
    for what, command in _commands(page, place):
        console().print(Text.assemble((f"{what}:", "dim"), "\n  ", plain(command)), soft_wrap=True)  # in one line, to be copied


def _commands(page: Page, place: str) -> list[tuple[str, str]]:
    """What to type: for the packages, for the compiled graphs and for the script of this row."""
    line = page.line
    chosen = {"--target": line.target, "--compiler": line.compiler_version, "--transformers": line.library_version, "--cores": line.cores}
    words = [page.model_id, *(word for option, value in chosen.items() if value for word in (option, str(value))), "--data", place]
    script = f"{program()} show {shlex.join(words)} --run-py > run.py" if page.run_py else ""
    commands = [("Its packages", page.install), ("Its compiled graphs", page.graphs), ("Its script", script)]
    return [(what, command) for what, command in commands if command]


def _page_facts(page: Page) -> list[tuple[str, Text]]:
    line = page.line
    cores = f"{line.cores} core{'' if line.cores == 1 else 's'}" if line.cores else ""
    where = [cores, *([f"of {line.device}"] if line.device else []), *([f"({line.target})"] if line.target else [])]
    memory = f"{line.peak_gb:.2f} GB at its peak on the fullest rank" if line.peak_gb is not None else ""
    shown = [
        ("why", "" if page.failure else line.why),
        ("where", " ".join(where) if cores else ""),
        ("versions", _versions(line) and f"{line.compiler} {line.compiler_version}, {line.library} {line.library_version}"),
        ("architecture", line.architecture),
        ("weights", f"{line.weights_gb:.2f} GB once loaded" if line.weights_gb else ""),
        ("wall time", f"{line.wall_s} s, compilation included" if line.wall_s is not None else ""),
        ("memory", memory),
        ("tested", line.tested_at.isoformat(" ", "seconds") if line.tested_at else ""),
        ("revision", page.values.get("revision") or ""),
        ("notes", page.values.get("notes") or ""),
    ]
    return [(name, plain(value)) for name, value in shown if value]


def _sections(page: Page) -> list[Text | Table]:
    from doesitrun.catalog import why_forecast as forecast_line

    parts: list[Text | Table] = []
    if page.failure:
        failure = page.failure
        said = [("reason", f"{failure.reason} ({failure.fault})" if failure.fault else failure.reason), ("stage", failure.stage)]
        said += [("meaning", failure.meaning), ("advice", failure.advice), ("error", failure.text)]
        parts += [_heading("Why there is no PASS"), fact_table([(name, plain(value)) for name, value in said if value])]
    if page.evidence:
        parts += [
            _heading("What it rests on" if page.line.result == Result.PASS else "What was measured"),
            fact_table(_evidence_facts(page.evidence)),
        ]
    if page.suggestions:
        parts += [_heading("What to try next"), *map(_suggestion, page.suggestions)]
    others = [forecast for forecast in page.forecasts if forecast != page.line.forecast]
    if others:
        parts += [_heading("What the planner expects"), fact_table([(each.target, plain(forecast_line(each))) for each in others])]
    for history in page.histories:
        parts += [_heading(_history_title(history)), plain(history.sentence)]
        parts.append(_history_table(history))
    if page.stack:
        parts += [_heading("Software"), fact_table([(name, plain(version)) for name, version in page.stack])]
    return [*parts, *(plain(f"\n{notice}") for notice in page.notices)]


def _heading(text: str) -> Text:
    return Text.assemble("\n", (text, "bold"))


def _suggestion(suggestion: Suggestion) -> Text:
    return plain(f"- {suggestion.sentence}")


def _evidence_facts(evidence: Evidence) -> list[tuple[str, Text]]:
    def figure(value: float | None, text: str) -> str:
        return "" if value is None else f"{value:.2f}{text}"

    shown = [
        ("rests on", "\n".join(f"{rung}: {meaning}" for rung, meaning in evidence.rungs)),
        ("R", figure(evidence.logit_ratio, ", where 1 is rounding alone")),
        ("tokens", f"{evidence.cpu_match} leading ones equal the CPU's" if evidence.cpu_match else ""),
        ("English", evidence.english),
        ("judge", evidence.judge),
        ("seconds", ", ".join(f"{name} {value:.1f}" for name, value in evidence.seconds)),
        ("GB per core", ", ".join(f"{name} {value:.2f}" for name, value in evidence.memory_gb)),
        ("graphs", "" if evidence.graphs is None else str(evidence.graphs)),
        ("text", f"{evidence.prompt} ->{evidence.output_text}" if evidence.output_text else ""),
    ]
    return [(name, plain(value)) for name, value in shown if value]


def _history_title(history: History) -> str:
    on = f" on {history.target}" if history.target else ""
    return f"History{on}{f', {history.task}' if history.task else ''}"


def _history_table(history: History) -> Table:
    names = ["versions", "result", "cores", *(["wall s", "peak GB", "tested"] if console().width >= WIDE else []), "why"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=name not in ("versions", "why"))
    for line in history.lines:
        cells = {
            "versions": plain(_versions(line)),
            "result": _result(line),
            "cores": plain(line.cores),
            "wall s": plain(line.wall_s),
            "peak GB": plain("" if line.peak_gb is None else f"{line.peak_gb:.2f}"),
            "tested": plain(line.tested_at.date().isoformat() if line.tested_at else ""),
            "why": plain(line.why),
        }
        table.add_row(*(cells[name] for name in names))
    return table


# ---------------------------------------------------------------------------------- two pairs
def show_comparison(comparison: Comparison, *, as_json: bool) -> None:
    """Counts of every kind of change, and the models, or one line of JSON."""
    from doesitrun.catalog import as_json as to_json

    if as_json:
        print(json.dumps(to_json(comparison), ensure_ascii=False))
        return
    console().print(plain(f"{comparison.before}  ->  {comparison.after}"), soft_wrap=True)
    console().print(", ".join(f"{count} {kind.value}" for kind, count in comparison.counts.items()))
    if comparison.changes:
        console().print(_changes_table(comparison.changes))


def _changes_table(changes: Sequence[Change]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("change", "model", "before", "after", "cores", "seconds after : before", "why"):
        table.add_column(name, overflow="fold")
    for change in changes:
        table.add_row(
            Text(change.kind.value, _CHANGE_COLOURS.get(change.kind.value, "")),
            _name(change.model_id),
            _result(change.before) if change.before else Text("-"),
            _result(change.after) if change.after else Text("-"),
            plain(change.cores),
            plain("" if change.ratio is None else f"{change.ratio:.2f}"),
            plain(change.after.why if change.after and change.after.result != Result.PASS else ""),
        )
    return table
