"""The command `doesitrun` itself; its commands are the other modules here."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from doesitrun import __version__

app = typer.Typer(
    name="doesitrun",
    help="Does this Hugging Face model run on that accelerator, with that software stack? Answered by running it, with proof.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing Rich would take half of the time that --help may take
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with `doesitrun demo`: a real model on this machine, with nothing downloaded from a hub.",
)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error of the tool.")] = False,
) -> None:
    if version:
        print(f"doesitrun {__version__}")
        raise typer.Exit
    os.environ["DOESITRUN_DEBUG"] = "1" if debug else os.environ.get("DOESITRUN_DEBUG", "")
