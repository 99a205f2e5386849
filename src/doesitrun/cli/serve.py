"""The command serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from doesitrun.cli.app import app
from doesitrun.cli.lookup import DEFAULT_DATA, Data
from doesitrun.errors import UsageError


@app.command()
def serve(
    data: Data = DEFAULT_DATA,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="Port. Default: the first free one from 7860.", min=1, max=65535)] = None,
    opened: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    export_space: Annotated[Path | None, typer.Option(help="Write a folder that is a Hugging Face Space, and stop.")] = None,
) -> None:
    """Serve the web page that looks models up, with its HTTP API, MCP tools, badges and feed.

    It reads what is published and needs neither torch nor an accelerator. New data show up by themselves within a minute.
    Ctrl-C stops it.
    """
    from doesitrun import screen

    try:
        from doesitrun.app import server, space
    except ModuleNotFoundError as error:
        message = f"The web page needs the package {error.name}: pip install 'doesitrun[serve]'."
        raise UsageError(message) from None
    if export_space:
        screen.show_space(export_space, space.export(export_space, data))
        return
    server.serve(data, host, port, screen.show_address, opened=opened)
