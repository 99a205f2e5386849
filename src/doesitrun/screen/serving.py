"""What `serve` says in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from doesitrun.screen.terminal import console, plain, program, short


def show_address(address: str) -> None:
    """Where the web app answers, and its other doors."""
    console().print(
        plain(
            f"Does it run?  {address}\n  API    {address}/?view=api\n  MCP    {address}/gradio_api/mcp/\n  feed   {address}/changes.atom\nCtrl-C stops it."
        ),
        soft_wrap=True,
    )


def show_space(folder: Path, written: Sequence[str]) -> None:
    """What an exported Space holds, and how to try it."""
    where = short(folder)
    console().print(
        plain(f"{where} is a Hugging Face Space: {', '.join(written)}\nTry it:    cd {where} && python app.py\nPublish it: hf upload ORG/NAME {where} --repo-type space"),
        soft_wrap=True,
    )


def offer_serving(root: Path) -> None:
    """The next step after a workspace has rows."""
    console().print(plain(f"Look at it in the browser:\n  {program()} serve --data {short(root)}"), soft_wrap=True)
