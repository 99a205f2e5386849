"""The command verify."""

from __future__ import annotations

from typing import Annotated

import typer

from doesitrun.cli.app import app
from doesitrun.cli.options import DEFAULT_WORKSPACE, Json, WorkspaceFolder
from doesitrun.errors import EXIT_DISAGREES


@app.command()
def verify(
    attempts: Annotated[
        list[str] | None,
        typer.Argument(help="Folders of attempts, run ids or plan ids. Default: all of the workspace.", show_default=False),
    ] = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    as_json: Json = False,
) -> None:
    """Reach the verdict on past attempts again, from what they left, and say whether their rows agree.

    It needs no device, no model and no torch: tokens, logits, the reference's answer and the judge's word lie in the
    attempt's folder. The exit status is 0 when every row agrees with its evidence, and 13 when one does not.
    """
    from doesitrun import campaign, screen
    from doesitrun.store.workspace import Workspace

    found = []
    for folder in campaign.attempts_named(attempts or [], Workspace(workspace)):
        found.append(campaign.replay(folder))
        if as_json:
            print(screen.replay_json(found[-1]))
        else:
            screen.show_replay(found[-1])
    raise typer.Exit(EXIT_DISAGREES if any(each.agrees is False for each in found) else 0)
