"""Commands on what was published: lookup, show, compare."""

from __future__ import annotations

from typing import Annotated

import typer

from doesitrun.cli.app import app
from doesitrun.cli.options import Json

Data = Annotated[
    str,
    typer.Option(
        "--data", "-d", envvar="DOESITRUN_DATA", help="A workspace, a folder of published Parquet files or hf://datasets/ORG/NAME."
    ),
]
OfTarget = Annotated[str | None, typer.Option("--target", help="Only this kind of accelerator: neuron, cuda, cpu.")]
OfTask = Annotated[str | None, typer.Option("--task", help="Only this task of the Hub.")]
OfCores = Annotated[int | None, typer.Option("--cores", min=1, help="Only runs on so many cores.")]
OfCompiler = Annotated[str | None, typer.Option("--compiler", help="Only this version of the compiler.")]
OfLibrary = Annotated[str | None, typer.Option("--transformers", help="Only this version of transformers.")]
DEFAULT_DATA = "results"


@app.command()
def lookup(
    pattern: Annotated[str, typer.Argument(help="Any part of a model's name.")] = "",
    view: Annotated[str, typer.Option(help="selected (what was tested), trending or downloads (the Hub's own order).")] = "selected",
    result: Annotated[str | None, typer.Option(help="PASS, FAIL, EXCLUDED, INCONCLUSIVE or untested.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only this reason, such as device_oom.")] = None,
    task: OfTask = None,
    architecture: Annotated[str | None, typer.Option("--arch", help="Only this architecture, such as Qwen3ForCausalLM.")] = None,
    size: Annotated[str | None, typer.Option(help="Weights as loaded: '0-2 GB', '2-8 GB', '8-20 GB', '20-80 GB', 'over 80 GB'.")] = None,
    cores: OfCores = None,
    target: OfTarget = None,
    compiler: OfCompiler = None,
    transformers: OfLibrary = None,
    each: Annotated[str, typer.Option(help="One line per model, or per pair of versions.")] = "model",
    sort: Annotated[str | None, typer.Option(help="A column: model_id, result, cores, wall_s, peak_gb, weights_gb, tested_at, ...")] = None,
    descending: Annotated[bool, typer.Option("--desc", help="The largest first.")] = False,
    offset: Annotated[int, typer.Option(min=0, help="Lines to pass over.")] = 0,
    limit: Annotated[int, typer.Option(min=0, help="Lines to show.")] = 50,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Look models up by any part of their name: do they run, on what, and what does that rest on?

    A model that was not run shows why not, or the planner's forecast, marked as one. Needs no accelerator and no torch.
    """
    from doesitrun import catalog, screen

    query = catalog.Query(
        text=pattern,
        view=catalog.choice(catalog.View, view, "--view"),
        task=task,
        result=result,
        reason=reason,
        architecture=architecture,
        size=None if size is None else catalog.choice(catalog.Size, size, "--size"),
        cores=cores,
        target=target,
        compiler_version=compiler,
        library_version=transformers,
        each=catalog.choice(catalog.Each, each, "--each"),
        sort=None if sort is None else catalog.choice(catalog.Sort, sort, "--sort"),
        descending=descending,
        offset=offset,
        limit=limit,
    )
    opened = catalog.open_data(data).current()
    screen.show_notices(opened.notices)
    screen.show_found(catalog.find(opened, query), offset=offset, as_json=as_json)


@app.command()
def show(
    model: Annotated[str, typer.Argument(help="The model's whole name, as lookup prints it.", show_default=False)],
    task: OfTask = None,
    cores: OfCores = None,
    target: OfTarget = None,
    compiler: OfCompiler = None,
    transformers: OfLibrary = None,
    run_py: Annotated[bool, typer.Option("--run-py", help="Print only the script that ran.")] = False,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show everything about one model: evidence, history, error and advice, software, how to run it, what to try next.

    Of several rows the one with the newest versions is shown; the options choose another. Exit status 3: nothing is known of it.
    """
    from doesitrun import catalog, screen

    wanted = catalog.Query(task=task, cores=cores, target=target, compiler_version=compiler, library_version=transformers)
    opened = catalog.open_data(data).current()
    screen.show_notices(opened.notices)
    page = catalog.page(opened, model, wanted)
    if run_py:
        print(catalog.script_of(page), end="")
    else:
        screen.show_page(page, data, as_json=as_json)


@app.command()
def compare(
    before: Annotated[str, typer.Argument(help="A pair of versions, or any part of its name that no other has.", show_default=False)],
    after: Annotated[str, typer.Argument(help="The pair to compare it with.", show_default=False)],
    slower: Annotated[float, typer.Option(min=1.0, help="From how many times the seconds on a model counts as slower.")] = 1.2,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Compare two pairs of compiler and library versions: which models were fixed, broke, became slower, are new or gone.

    A pair is written like neuron/neuronx-cc-2.28.7631.0/transformers-5.24.0.
    """
    from doesitrun import catalog, screen

    opened = catalog.open_data(data).current()
    screen.show_notices(opened.notices)
    found = catalog.compare(opened, catalog.pair_named(opened, before), catalog.pair_named(opened, after), slower)
    screen.show_comparison(found, as_json=as_json)
