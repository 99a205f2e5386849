"""The terminal's door: arguments in, tables or JSON out. No logic of its own."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import NoReturn

# Their commands are added by importing them.
from doesitrun.cli import campaigns, demo, environment, graphs, hub, lookup, models, serve, verify  # noqa: F401
from doesitrun.cli.app import app
from doesitrun.errors import EXIT_INTERRUPTED, DoesItRunError


def _fail(message: str, exit_code: int) -> NoReturn:
    if os.environ.get("DOESITRUN_DEBUG"):
        traceback.print_exc()
    # Names from outside are in it: their control codes are shown, not obeyed.
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)
    print(f"doesitrun: {shown}", file=sys.stderr)
    raise SystemExit(exit_code)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """The command `doesitrun`: errors of the tool are one sentence, and Ctrl-C or SIGTERM cleans up first."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except DoesItRunError as error:
        _fail(str(error), error.exit_code)
    except SystemExit as ended:
        if ended.code == EXIT_INTERRUPTED:
            print("doesitrun: stopped; nothing is left running, and the next call starts clean.", file=sys.stderr)
        raise
    except BrokenPipeError:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except OSError as error:
        _fail(f"the system refused ({error.strerror or error}): see that the output and the workspace can be written.", 6)
    except Exception as error:  # noqa: BLE001 a fault of ours is said in one sentence, too
        _fail(f"an error of its own, {type(error).__name__}: {error}; please report it with what --debug prints.", 1)
