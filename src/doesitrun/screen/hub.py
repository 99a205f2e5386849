"""Rankings, selections and publications, as tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from doesitrun.campaign.publishing import Brought, Publication
from doesitrun.campaign.ranking import Taken
from doesitrun.records import Forecast, dumps
from doesitrun.screen.terminal import GB, console, new_table, plain, program, seconds, short
from doesitrun.select import Selected

SHOWN = 10
"""Lines of a long table that a terminal is shown; the file has all."""


def show_ranking(taken: Taken, *, as_json: bool) -> None:
    """What was taken: per line the ranked model with its plans for programs, the heads and sums of it for people."""
    plans: dict[str, dict[str, dict[str, object]]] = {}
    for target, forecasts in taken.forecasts.items():
        for each in forecasts:
            said: dict[str, object] = {"outcome": each.outcome, "cores": each.cores, "reason": each.reason, "detail": each.detail}
            plans.setdefault(each.model_id, {})[target] = said
    if as_json:
        for line in taken.ranked:
            print(json.dumps(json.loads(dumps(line)) | {"plans": plans.get(line.model_id, {})}, ensure_ascii=False))
        return
    for task, by in dict.fromkeys((line.task, line.by) for line in taken.ranked):
        lines = [line for line in taken.ranked if (line.task, line.by) == (task, by)]
        table = _table(f"{task} by {by}, {taken.day}", ("rank", "model", "downloads", "likes", "parameters", *taken.forecasts))
        for line in lines[:SHOWN]:
            numbers = (_number(line.downloads), _number(line.likes), _billions(line.parameters))
            cells = [_plan(plans.get(line.model_id, {}).get(target)) for target in taken.forecasts]
            table.add_row(str(line.rank), plain(line.model_id), *numbers, *cells)
        console().print(table)
        if len(lines) > SHOWN:
            console().print(plain(f"  and {len(lines) - SHOWN} more"))
    for target, forecasts in taken.forecasts.items():
        console().print(plain(f"{target}: {_sums(forecasts)}"), soft_wrap=True)
    files = "".join(f"\n  {short(path)}" for path in taken.files)
    waited = f", {seconds(taken.waited_s)} of waiting" if taken.waited_s else ""
    console().print(plain(f"{taken.requests} requests{waited}. Kept in:{files}\nChoose what to run:\n  {program()} select --count 100"))


def _sums(forecasts: Sequence[Forecast]) -> str:
    planned = sum(each.outcome == "plan" for each in forecasts)
    reasons = Counter(each.reason for each in forecasts if each.outcome != "plan")
    parts = [f"{count} {reason}" for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], str(item[0])))]
    return f"{len(forecasts)} models = {' + '.join([f'{planned} with a plan', *parts])}"


def _plan(found: dict[str, object] | None) -> Text:
    if found is None:
        return Text("-")
    if found["cores"]:
        return Text(f"{found['cores']} core{'s' if found['cores'] != 1 else ''}", "green")
    return Text(str(found["reason"]), "yellow")


def show_selection(lines: Sequence[Selected], path: Path) -> None:
    """The chosen ones in their order, the excluded ones by reason, and the next command."""
    chosen = [line for line in lines if line.chosen]
    target = lines[0].target if lines else ""
    table = Table(title=f"Chosen for {target}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("place", "cores", "core-h"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("model", overflow="fold")
    table.add_column("why", overflow="fold")
    for line in chosen[:SHOWN]:
        table.add_row(str(line.place), plain(line.cores or "?"), _hours(line.est_core_hours), plain(line.model_id), plain(line.detail))
    console().print(table)
    if len(chosen) > SHOWN:
        console().print(plain(f"  and {len(chosen) - SHOWN} more"))
    excluded = [line for line in lines if not line.chosen]
    if excluded:
        console().print(_excluded(excluded))
    hours = sum(line.est_core_hours or 0.0 for line in chosen)
    console().print(
        plain(
            f"{len(lines)} models = {len(chosen)} chosen + {len(excluded)} excluded; about {hours:.1f} core-hours, by estimate.\n"
            f"One line per model, with the reason: {short(path)}\nRun them:\n  {program()} campaign --selected {len(chosen)}"
        ),
        soft_wrap=True,
    )


def _excluded(lines: Sequence[Selected]) -> Table:
    table = Table(title="Excluded", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("reason", "models", "for example"):
        table.add_column(name, overflow="fold", justify="right" if name == "models" else "left")
    reasons = Counter(line.reason for line in lines if line.reason is not None)
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0].value)):
        example = next(line for line in lines if line.reason is reason)
        table.add_row(plain(f"{reason.value} ({reason.fault.value})"), str(count), plain(f"{example.model_id}: {example.detail}"))
    return table


def show_publication(done: Publication, *, as_json: bool) -> None:
    """The difference in rows per file, and what came of it."""
    if as_json:
        print(dumps(done))
        return
    table = _table(f"{done.dataset}", ("file", "there", "here", "new", "changed", "lost", "what"))
    for each in done.changes:
        numbers = (str(n) if n else "-" for n in (each.rows_there, each.rows_here, each.added, each.changed, each.lost))
        table.add_row(plain(each.path), *numbers, Text(each.what, "bold red" if each.lost else "green" if each.what != "kept" else "dim"))
    console().print(table)
    console().print(plain(done.said), soft_wrap=True)


def show_import(brought: Sequence[Brought]) -> None:
    """The files that were brought in."""
    table = _table("Imported", ("file", "rows", "from"))
    for each in brought:
        table.add_row(plain(short(each.path)), str(each.rows), plain(", ".join(each.sources)))
    console().print(table)


def _table(title: str, names: Sequence[str]) -> Table:
    table = new_table(title, ())
    for name in names:
        left = name in ("model", "file", "what", "from")
        table.add_column(name, justify="left" if left else "right", no_wrap=not left, overflow="fold")
    return table


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _billions(value: int | None) -> str:
    return "-" if value is None else f"{value / GB:.1f}B" if value >= GB / 10 else f"{value / 10**6:.0f}M"


def _hours(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"
