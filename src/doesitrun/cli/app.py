"""The command `doesitrun` itself; its commands are the other modules here."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from doesitrun import __version__

# As a reader meets them: one model, many models, what was found, the machine.
ORDER = (
    *("demo", "test", "plan", "script", "verify", "explain"),
    *("rank", "select", "campaign", "publish", "import"),
    *("lookup", "show", "compare", "serve"),
    *("graphs", "stacks", "doctor"),
)


class InOrder(TyperGroup):
    """Commands in the order of `ORDER`; Typer's own is that of their modules' imports."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = typer.Typer(
    name="doesitrun",
    cls=InOrder,
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
