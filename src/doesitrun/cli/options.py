"""Arguments and options that several commands share, and what they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from doesitrun.records import Dtype

Model = Annotated[str, typer.Argument(help="A Hub id (org/name) or a checkpoint folder.", show_default=False)]
Models = Annotated[list[str], typer.Argument(help="Hub ids, checkpoint folders or config.json files.", show_default=False)]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the Hub.")]
TaskName = Annotated[str | None, typer.Option("--task", help="text-generation or image-text-to-text. Default: the model's own.")]
Target = Annotated[str | None, typer.Option(help="neuron, cuda or cpu. Default: the best that the stack has.")]
DeviceName = Annotated[str | None, typer.Option("--device", help="Product to plan for: trn2, h200, ... Default: the stack's.")]
Cores = Annotated[int | None, typer.Option(min=1, help="Cores to shard over. Default: the fewest that hold the model.")]
DtypeOption = Annotated[Dtype, typer.Option("--dtype", help="What the weights are loaded as.")]
NewTokens = Annotated[int, typer.Option(min=1, help="Tokens to generate.")]
Prompt = Annotated[str | None, typer.Option(help="Prompt. Default: the task's.")]
StackName = Annotated[str | None, typer.Option("--stack", help="Python environment of doesitrun.toml to run in.")]
WorkspaceFolder = Annotated[Path, typer.Option("--workspace", "-w", help="Folder for attempts, dataset and caches.")]
Config = Annotated[Path | None, typer.Option(help="Settings file. Default: ./doesitrun.toml, if it is there.")]
RemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run the code in this one model's repository.")]
Thorough = Annotated[bool, typer.Option("--thorough", help="Also run the probes: a second prompt, padding, long texts.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON value per line, for programs.")]
DEFAULT_WORKSPACE = Path("results")


def context_of(stack: str | None, target: str | None, workspace: Path, config: Path | None, watch: Any) -> Any:
    from doesitrun import campaign, screen, settings
    from doesitrun import stacks as environments
    from doesitrun.store.workspace import Workspace

    read = settings.load(config)
    return campaign.Context(environments.choose(read, stack, target), read, Workspace(workspace), watch, screen.warn)


def planning_context(stack: str | None, target: str | None, device: str | None, workspace: Path, config: Path | None, watch: Any) -> Any:
    """Planning needs some stack to ask for the model's outline, but not one that has the target."""
    from doesitrun import campaign, screen, settings
    from doesitrun import stacks as environments
    from doesitrun.store.workspace import Workspace

    read = settings.load(config)
    chosen = environments.stand_in(environments.choose(read, stack, None), target or target_of(device), device)
    return campaign.Context(chosen, read, Workspace(workspace), watch, screen.warn)


def target_of(device: str | None) -> str | None:
    from doesitrun.targets import DEVICES

    return DEVICES[device].target if device in DEVICES else None
