"""What `serve` says in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from doesitrun.screen.terminal import console, plain, program, short


def show_address(address: str, has_mcp: bool) -> None:
    """Where the web app answers, and its other doors."""
    lines = (
        f"Does it run?  {address}",
        f"  API    {address}/?view=api",
        f"  MCP    {address}/gradio_api/mcp/" if has_mcp else "  MCP    not here: pip install 'gradio[mcp]'",
        f"  feed   {address}/changes.atom",
        "Ctrl-C stops it.",
    )
    console().print(plain("\n".join(lines)), soft_wrap=True)


def show_space(folder: Path, written: Sequence[str]) -> None:
    """What an exported Space holds, and how to try it."""
    where = short(folder)
    lines = (
        f"{where} is a Hugging Face Space: {', '.join(written)}",
        f"Try it:     cd {where} && python app.py",
        f"Publish it: hf upload ORG/NAME {where} --repo-type space",
    )
    console().print(plain("\n".join(lines)), soft_wrap=True)


def offer_serving(root: Path) -> None:
    """The next step after a workspace has rows."""
    console().print(plain(f"Look at it in the browser:\n  {program()} serve --data {short(root)}"), soft_wrap=True)
