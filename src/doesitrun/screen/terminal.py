"""What all screens share: colours, text from outside made harmless, tables of facts."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from doesitrun.outcomes import Result

GB = 1e9
COLOURS = {Result.PASS: "bold green", Result.FAIL: "bold red", Result.EXCLUDED: "bold yellow", Result.INCONCLUSIVE: "bold magenta"}


def console() -> Console:
    return Console(highlight=False, soft_wrap=False)


def plain(value: object) -> Text:
    """The value's text with every control character shown as its code."""
    text = "" if value is None else str(value)
    return Text("".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text))


def seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def fact_table(pairs: Sequence[tuple[str, Text]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, value)
    return table


def short(path: Path) -> str:
    """The path as seen from here. A link is not followed: a virtual environment's Python is one."""
    whole = path.absolute()
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)


def new_table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def program() -> str:
    """How this program is called here."""
    return "doesitrun" if shutil.which("doesitrun") else short(Path(sys.executable).with_name("doesitrun"))
