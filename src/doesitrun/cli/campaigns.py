"""The command campaign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from doesitrun.cli.app import app
from doesitrun.cli.options import DEFAULT_WORKSPACE, Config, DeviceName, DtypeOption, Json, NewTokens, Target, TaskName, WorkspaceFolder
from doesitrun.errors import EXIT_CODES
from doesitrun.outcomes import Result
from doesitrun.records import Dtype

GB = 10**9


@app.command()
def campaign(
    models: Annotated[Path | None, typer.Option(help="File with a Hub id or folder a line, or JSON lines as select writes.")] = None,
    selected: Annotated[int | None, typer.Option(min=1, help="Instead: so many of the newest selection, best first.")] = None,
    stack: Annotated[list[str] | None, typer.Option(help="Python environment of doesitrun.toml; may be given again.")] = None,
    pool: Annotated[str, typer.Option(help="local, ray (a cluster of this machine) or ray=ADDRESS.")] = "local",
    cores: Annotated[int | None, typer.Option(min=1, help="Cores of this machine to use. Default: all of the device.")] = None,
    disk_limit: Annotated[float | None, typer.Option(min=1, help="GB of downloads to keep; finished models go first.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also run what has a result already.")] = False,
    retries: Annotated[int, typer.Option(min=0, help="How often an INCONCLUSIVE model is tried again at the end.")] = 2,
    target: Target = None,
    device: DeviceName = None,
    task: TaskName = None,
    dtype: DtypeOption = Dtype.BFLOAT16,
    new_tokens: NewTokens = 32,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Run a list of models on all cores; each gets a row: PASS, FAIL, EXCLUDED or INCONCLUSIVE.

    Stopped or killed, the same command goes on where it was. The longest models go first, each on its own group of cores;
    downloads and CPU references go on meanwhile. The exit status is 0 when every model has its result, and 12 when some
    are INCONCLUSIVE; a model that fails does not fail the campaign.
    """
    from doesitrun import campaign as composer
    from doesitrun import screen

    opened = composer.open_pool(pool, cores, workspace, screen.warn)
    default = composer.Ask("", task=task, device=device, dtype=dtype, new_tokens=new_tokens)
    with screen.campaign_screen(as_json=as_json) as listen:
        contexts, listed = composer.open_lists(
            models, selected, default, lambda: composer.open_contexts(stack or [], target, device, workspace, config, screen.warn)
        )
        choice = composer.Choice(again, retries, None if disk_limit is None else int(disk_limit * GB), fetches=pool == "local")
        summary = composer.conduct(listed, contexts, opened, choice, listen)
    screen.show_summary(summary, as_json=as_json)
    if not summary.is_decided:
        raise typer.Exit(EXIT_CODES[Result.INCONCLUSIVE])
