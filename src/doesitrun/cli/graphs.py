"""Commands on compiled graphs: graphs push, pull, status, prune, command."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from doesitrun.cli.app import app
from doesitrun.cli.options import DEFAULT_WORKSPACE, Config, Json, Model, StackName, Target, WorkspaceFolder, context_of
from doesitrun.errors import UsageError

graphs = typer.Typer(
    help="Compiled graphs: publish them, fetch them, and print the line that copies them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="URL is a folder, s3://BUCKET/PREFIX or hf://buckets/NAMESPACE/NAME/PREFIX. Each test collects what its run used.",
)
app.add_typer(graphs, name="graphs")

Url = Annotated[str | None, typer.Argument(help="Store of graphs. Default: graphs.url of doesitrun.toml.", show_default=False)]
Store = Annotated[str | None, typer.Option("--store", help="Store of graphs. Default: graphs.url of doesitrun.toml.")]
OfModels = Annotated[list[str] | None, typer.Option("--model", help="Only this model's graphs; may be given again.")]
PairName = Annotated[str | None, typer.Option("--pair", help="COMPILER/FRAMEWORK/MACHINE, as `status` shows it. Default: the stack's.")]


def _url(url: str | None, config: Any) -> str:
    from doesitrun import settings

    found = url or settings.load(config).graphs.url
    if found is None:
        raise UsageError("Which store? Name a folder, s3://... or hf://buckets/..., or set graphs.url in doesitrun.toml.")
    return found


def _pair(pair: str | None, stack: str | None, target: str | None, workspace: Any, config: Any) -> Any:
    from doesitrun.campaign import sharing
    from doesitrun.graphs import pair_of

    if pair is not None:
        return sharing.parse_pair(pair)
    return pair_of(context_of(stack, target, workspace, config, lambda _: None).stack)


@graphs.command()
def push(
    url: Url = None,
    model: OfModels = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Store this workspace's graphs, and say in their rows where they lie.

    Only what the store lacks is uploaded, and nothing there is overwritten, so several machines may push at once. The
    graphs of a run that did not get through are never pushed.
    """
    from doesitrun import screen
    from doesitrun.campaign import sharing
    from doesitrun.store.workspace import Workspace

    with screen.progress(as_json=as_json) as watch:
        done = sharing.push(_url(url, config), Workspace(workspace), model or (), watch)
    screen.show_pushed(done, as_json=as_json)


@graphs.command()
def pull(
    url: Url = None,
    model: OfModels = None,
    pair: PairName = None,
    stack: StackName = None,
    target: Target = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Fetch graphs that this stack's versions can use; every file is checked by its hash.

    A pull that was cut off is resumed by the next one. `doesitrun test --graphs URL` pulls by itself.
    """
    from doesitrun import screen
    from doesitrun.campaign import sharing
    from doesitrun.store.workspace import Workspace

    with screen.progress(as_json=as_json) as watch:
        found = _pair(pair, stack, target, workspace, config)
        pulled = sharing.pull(_url(url, config), Workspace(workspace), found, model or (), watch)
    screen.show_pulled(pulled, as_json=as_json)


@graphs.command()
def status(
    url: Url = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the graphs of this workspace by version, and how a store differs from them."""
    from doesitrun import screen, settings
    from doesitrun.campaign import sharing
    from doesitrun.store.workspace import Workspace

    screen.show_status(sharing.status(Workspace(workspace), url or settings.load(config).graphs.url), as_json=as_json)


@graphs.command()
def prune(
    url: Annotated[str | None, typer.Argument(help="Store to prune. Default: the workspace.", show_default=False)] = None,
    keep_pairs: Annotated[int, typer.Option(min=1, help="Pairs of versions that stay: the latest ones.")] = 3,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    as_json: Json = False,
) -> None:
    """Remove the graphs of all but the latest pairs of versions.

    Of the pairs that stay, only files go that no plan's manifest names, a day after they came.
    """
    from doesitrun import screen
    from doesitrun.campaign import sharing
    from doesitrun.store.workspace import Workspace

    screen.show_pruned(sharing.prune(Workspace(workspace), url, keep_pairs, dry_run=dry_run), dry_run=dry_run, as_json=as_json)


@graphs.command()
def command(
    model: Model,
    store: Store = None,
    pair: PairName = None,
    stack: StackName = None,
    target: Target = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Print the line that copies a model's graphs, and the variable to set; the other side needs no doesitrun.

    It refuses where the versions here are not those that the graphs were compiled with, and names the nearest that are.
    """
    from doesitrun import screen
    from doesitrun.campaign import sharing

    found = _pair(pair, stack, target, workspace, config)
    screen.show_command(sharing.copy_line(_url(store, config), model, found), as_json=as_json)
