"""Commands on models: test, plan, script."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from doesitrun.cli.app import app
from doesitrun.cli.options import (
    DEFAULT_WORKSPACE,
    Config,
    Cores,
    DeviceName,
    DtypeOption,
    Json,
    Model,
    Models,
    NewTokens,
    Prompt,
    RemoteCode,
    Revision,
    StackName,
    Target,
    TaskName,
    Thorough,
    WorkspaceFolder,
    context_of,
    planning_context,
    target_of,
)
from doesitrun.errors import EXIT_CODES
from doesitrun.outcomes import Result
from doesitrun.records import Dtype


@app.command()
def test(
    model: Model,
    revision: Revision = None,
    task: TaskName = None,
    target: Target = None,
    device: DeviceName = None,
    cores: Cores = None,
    dtype: DtypeOption = Dtype.BFLOAT16,
    new_tokens: NewTokens = 32,
    prompt: Prompt = None,
    reference: Annotated[str | None, typer.Option(help="Compare with this checkpoint instead of the model's own weights.")] = None,
    thorough: Thorough = False,
    repeat: Annotated[int, typer.Option(min=1, help="Fresh attempts; more than one gives a flake rate.")] = 1,
    trust_remote_code: RemoteCode = False,
    graphs: Annotated[str | None, typer.Option(help="Store to pull compiled graphs from first: a folder, s3:// or hf://.")] = None,
    stack: StackName = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Run one model and say PASS, FAIL, EXCLUDED or INCONCLUSIVE, with the proof.

    It plans the model, writes its run.py, runs it isolated, compares what it generated with the CPU, and leaves
    everything in the workspace. The exit status is 0 for PASS, 10 for FAIL, 11 for EXCLUDED and 12 for INCONCLUSIVE.
    A failure that looks intermittent is tried again, once. --repeat 10 says how often it ends otherwise than usual,
    and the exit status is that of the usual end. --thorough also tries a second prompt, a padded batch, a long
    position and a long text, each of which becomes a rung of the row.
    """
    from doesitrun import campaign, screen

    asked = campaign.Ask(model, revision, task, device, cores, dtype, new_tokens, prompt, trust_remote_code, reference, thorough)
    with screen.progress(as_json=as_json) as watch:
        context = dataclasses.replace(context_of(stack, target or target_of(device), workspace, config, watch), graphs=graphs)
        rows = list(campaign.repeat(asked, context, repeat)) if repeat > 1 else [campaign.test(asked, context)]
    if repeat > 1:
        screen.show_repeats(rows, as_json=as_json)
        raise typer.Exit(EXIT_CODES[campaign.flakes(rows).usual or Result.INCONCLUSIVE])
    (row,) = rows
    if as_json:
        print(json.dumps(row.to_json(), ensure_ascii=False))
    else:
        screen.show_row(row, context.workspace)
    raise typer.Exit(EXIT_CODES[row.result or Result.INCONCLUSIVE])


@app.command()
def plan(
    models: Models,
    revision: Revision = None,
    task: TaskName = None,
    target: Target = None,
    device: DeviceName = None,
    cores: Cores = None,
    dtype: DtypeOption = Dtype.BFLOAT16,
    new_tokens: NewTokens = 32,
    trust_remote_code: RemoteCode = False,
    stack: StackName = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show on how many cores, and how sharded, a model would run, or why it would not; run nothing.

    Needs no accelerator: --device plans for one that is not here.
    """
    from doesitrun import campaign, screen

    asks = [campaign.Ask(model, revision, task, device, cores, dtype, new_tokens, None, trust_remote_code) for model in models]
    with screen.progress(as_json=as_json) as watch:
        context = planning_context(stack, target, device, workspace, config, watch)
        prepared = campaign.prepare(asks, context)
    for each in prepared:
        if as_json:
            print(screen.plan_json(each))
        else:
            screen.show_plan(each)


@app.command()
def script(
    model: Model,
    revision: Revision = None,
    task: TaskName = None,
    target: Target = None,
    device: DeviceName = None,
    cores: Cores = None,
    dtype: DtypeOption = Dtype.BFLOAT16,
    new_tokens: NewTokens = 32,
    prompt: Prompt = None,
    thorough: Thorough = False,
    trust_remote_code: RemoteCode = False,
    stack: StackName = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
) -> None:
    """Print the run.py that `test` would run, and stop."""
    from doesitrun import campaign, screen

    asked = campaign.Ask(model, revision, task, device, cores, dtype, new_tokens, prompt, trust_remote_code, thorough=thorough)
    with screen.progress(as_json=False) as watch:
        context = planning_context(stack, target, device, workspace, config, watch)
        (prepared,) = campaign.prepare([asked], context)
    print(campaign.run_py(prepared, context), end="")
