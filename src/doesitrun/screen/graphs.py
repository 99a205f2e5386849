"""Compiled graphs, as tables and sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from doesitrun.graphs import CopyCommand, PairStatus, Pruned, Pulled, Pushed
from doesitrun.records import Row, dumps
from doesitrun.screen.progress import warn
from doesitrun.screen.terminal import console, new_table, plain

_MB = 1e6


def graphs_of(row: Row) -> str | None:
    """What the row says of its graphs, in words."""
    if row.graph_hits is None or row.graph_misses is None or not row.graph_hits + row.graph_misses:
        return None
    return f"{row.graph_hits} from the cache, {row.graph_misses} compiled"


def show_pushed(done: Sequence[Pushed], *, as_json: bool) -> None:
    """What a push did, one line a pair."""
    for each in done:
        if as_json:
            print(dumps({**_fields(each), "pair": str(each.pair)}))
            continue
        for problem in each.problems:
            warn(problem)
        told = f"{each.uploaded} uploaded ({each.uploaded_bytes / _MB:.1f} MB), {each.present} were there, {len(each.plans)} plans"
        console().print(plain(f"{each.pair}: {told}"), soft_wrap=True)


def show_pulled(pulled: Pulled, *, as_json: bool) -> None:
    """What a pull did."""
    plans = [manifest.plan_id for manifest in pulled.manifests]
    if as_json:
        print(dumps({**_fields(pulled), "pair": str(pulled.pair), "manifests": plans}))
        return
    for problem in pulled.problems:
        warn(problem)
    told = f"{pulled.fetched} fetched ({pulled.fetched_bytes / _MB:.1f} MB), {pulled.present} were here, {len(plans)} plans"
    console().print(plain(f"{pulled.pair}: {told}"), soft_wrap=True)


def show_status(lines: Sequence[PairStatus], *, as_json: bool) -> None:
    """The pairs as a table: here, in the store, and what only one side has."""
    if as_json:
        for each in lines:
            print(dumps({**_fields(each), "pair": str(each.pair)}))
        return
    if not lines:
        console().print(plain("No graphs yet: `doesitrun test MODEL` collects them."))
        return
    table = new_table("Compiled graphs", ["plans", "graphs", "files", "MB", "to copy"])
    table.add_column("where")
    for each in lines:
        table.add_section()
        pushes = "" if each.to_push is None else f"{each.to_push} to push"
        pulls = f"{each.to_pull} to pull"
        _add(table, (each.plans_here, each.graphs_here, each.entries_here, each.bytes_here, pushes), "here")
        if each.bytes_there is not None:
            _add(table, (each.plans_there, each.graphs_there, each.entries_there, each.bytes_there, pulls), "in the store")
        table.add_row("", "", "", "", "", plain(str(each.pair).replace("/", "\n")), style="dim")
    console().print(table)


def _add(table: Table, figures: tuple[int | None, int | None, int | None, int, str], where: str) -> None:
    plans, graphs, files, size, missing = figures
    table.add_row(*(plain(value) for value in (plans, graphs, files, f"{size / _MB:.1f}", missing, where)))


def show_pruned(pruned: Pruned, *, dry_run: bool, as_json: bool) -> None:
    """What a prune removed, or would."""
    if as_json:
        values = {"kept": [str(pair) for pair in pruned.kept], "gone": [str(pair) for pair in pruned.gone], "dry_run": dry_run}
        print(dumps({**values, "removed": list(pruned.removed), "removed_bytes": pruned.removed_bytes}))
        return
    verb = "would go" if dry_run else "gone"
    for pair in pruned.gone:
        console().print(plain(f"{verb}: {pair}"))
    for pair in pruned.kept:
        console().print(plain(f"kept: {pair}"))
    console().print(plain(f"{pruned.removed_bytes / _MB:.1f} MB {verb}"))


def show_command(command: CopyCommand, *, as_json: bool) -> None:
    """The lines to copy, and nothing else, so that they can be piped."""
    if as_json:
        print(dumps({**_fields(command), "variables": dict(command.variables)}))
        return
    for line in command.lines:
        print(line)


def _fields(record: Any) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in dataclasses.fields(record)}
