"""Commands on what is popular, what of it is run, and where results are published: rank, select, publish, import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from doesitrun.cli.app import app
from doesitrun.cli.options import DEFAULT_WORKSPACE, Config, DeviceName, DtypeOption, Json, StackName, WorkspaceFolder, planning_context
from doesitrun.records import Dtype, dumps

Tasks = Annotated[list[str] | None, typer.Option("--task", help="Hub task; may be given again. Default: every task that can be tested.")]
Orders = Annotated[list[str] | None, typer.Option("--by", help="trending or downloads; may be given again. Default: both.")]
Targets = Annotated[list[str] | None, typer.Option("--target", help="Plan for this target; may be given again. Default: all.")]
Budget = Annotated[int | None, typer.Option(min=1, help="Requests per five minutes. Default: 450, or 900 with a token.")]
Decisions = Annotated[Path | None, typer.Option(help="The decisions taken by hand. Default: ./selection.toml, if it is there.")]


@app.command()
def rank(
    task: Tasks = None,
    by: Orders = None,
    top: Annotated[int, typer.Option(min=1, help="Models of each ranking.")] = 500,
    target: Targets = None,
    device: DeviceName = None,
    dtype: DtypeOption = Dtype.BFLOAT16,
    no_plans: Annotated[bool, typer.Option("--no-plans", help="Only take the rankings; needs no stack.")] = False,
    budget: Budget = None,
    stack: StackName = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Take the Hub's rankings of today, and plan every ranked model without its weights.

    Leaves rankings/DATE.parquet and plans/DATE/TARGET.parquet in the workspace. HF_ENDPOINT and HF_TOKEN are honoured. The Hub's
    limits are kept, and 429 and 5xx are waited out; if it stops all the same, the next call goes on where this one ended.
    """
    from doesitrun import screen
    from doesitrun.campaign import ranking
    from doesitrun.hub import rankings, traffic
    from doesitrun.tasks import TASKS

    devices = ranking.devices_of(target or (), device)
    ask = ranking.RankAsk(tuple(task or TASKS), tuple(by or rankings.ORDERS), top, devices, dtype)
    with screen.progress(as_json=as_json) as watch:
        context = None if no_plans else planning_context(stack, None, None, workspace, config, watch)
        taken = ranking.rank(ask, workspace, budget or traffic.default_budget(), context, screen.warn, watch)
    screen.show_ranking(taken, as_json=as_json)


@app.command()
def select(
    count: Annotated[int | None, typer.Option(min=1, help="Choose at most so many models.")] = None,
    core_hours: Annotated[float | None, typer.Option(min=0, help="Choose at most so many core-hours, by the estimates.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Look at the first so many of each ranking.")] = 500,
    target: Annotated[str | None, typer.Option(help="neuron, cuda or cpu. Default: the first that the models were planned for.")] = None,
    date: Annotated[str | None, typer.Option(help="Day of the ranking, as 2026-11-30. Default: the newest.")] = None,
    decisions: Decisions = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    as_json: Json = False,
) -> None:
    """Choose which ranked models to run, and say of every other one why not.

    What tells users most per core-hour goes first: popular models, architectures and sizes that are not covered yet. Fine-tunes and
    quantisations of a covered model are left out, with its name. The choice is kept in selection/DATE/TARGET.jsonl.
    """
    from doesitrun import screen
    from doesitrun.campaign import ranking
    from doesitrun.select import load_hand

    lines, path = ranking.select(ranking.SelectAsk(target, date, top, count, core_hours, load_hand(decisions)), workspace)
    if as_json:
        for line in lines:
            print(json.dumps(line.to_json(), ensure_ascii=False))
    else:
        screen.show_selection(lines, path)


@app.command()
def publish(
    dataset: Annotated[str, typer.Argument(metavar="ORG/NAME", help="Dataset repository on the Hub.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, in rows, and stop.")] = False,
    create: Annotated[bool, typer.Option("--create", help="Make the repository if it is not there.")] = False,
    private: Annotated[bool, typer.Option("--private", help="With --create: make it private.")] = False,
    allow_shrink: Annotated[bool, typer.Option("--allow-shrink", help="Also publish files that lose rows.")] = False,
    replace_card: Annotated[bool, typer.Option("--replace-card", help="Also replace a README.md that others wrote.")] = False,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    as_json: Json = False,
) -> None:
    """Publish results, rankings, plans and the dataset card in one commit.

    A file that would lose rows stops it, and nothing is published. Files of others in the repository stay; those of older shapes are
    brought to today's columns, so that all load together. Afterwards the repository is asked whether it holds what was sent.
    """
    from doesitrun import screen
    from doesitrun.campaign import publishing

    ask = publishing.PublishAsk(dataset, dry_run, create, private, allow_shrink, replace_card)
    with screen.progress(as_json=as_json) as watch:
        done = publishing.publish(ask, workspace, screen.warn, watch)
    screen.show_publication(done, as_json=as_json)


@app.command(name="import")
def import_(
    source: Annotated[str, typer.Argument(metavar="FOLDER|ORG/NAME", help="A folder of Parquet files, or a dataset on the Hub.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of the dataset.")] = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    as_json: Json = False,
) -> None:
    """Take the files of another dataset of results into this workspace, in today's columns.

    Every shape that was ever published is read: the reference dataset's with and without the column exclusion, and all of ours. The
    files lie in data/ beside our own, are never overwritten by them, and are published with them.
    """
    from doesitrun import screen
    from doesitrun.campaign import publishing

    with screen.progress(as_json=as_json) as watch:
        brought = publishing.bring_in(source, revision, workspace, screen.warn, watch)
    for each in brought:
        if as_json:
            print(dumps(each))
    if not as_json:
        screen.show_import(brought)
