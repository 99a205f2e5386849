"""The tool's own failures. Each is one sentence with the way out, and each has an exit code.

DoesItRunError            1  something the tool could not do
├── UsageError            2  the command line or doesitrun.toml is wrong
├── ModelNotFoundError    3  there is no such model, folder or revision
├── HubError              4  the Hub did not answer, or refused
├── StackError            5  no usable Python environment to run the model in
├── WorkspaceError        6  the results folder cannot be read or written
├── IsolationError        7  a child process could not be started or watched
└── GraphStoreError       8  the store of compiled graphs cannot be reached, read or written

A model that does not run is no error of the tool: it is a row. `doesitrun test` then exits with
the code of its result (see `EXIT_CODES`). Ctrl-C exits with 130, as shells expect.
"""

from __future__ import annotations

from doesitrun.outcomes import Result

EXIT_INTERRUPTED = 130
EXIT_DISAGREES = 13
"""Of `doesitrun verify`: a row says another thing than its evidence."""
EXIT_CODES = {Result.PASS: 0, Result.FAIL: 10, Result.EXCLUDED: 11, Result.INCONCLUSIVE: 12}


class DoesItRunError(Exception):
    """A failure of the tool itself; its text is one sentence that ends with the way out."""

    exit_code = 1


class UsageError(DoesItRunError):
    """The command line or doesitrun.toml asks for something that does not exist."""

    exit_code = 2


class ModelNotFoundError(DoesItRunError):
    """There is no such model on the Hub, no such revision, or no such folder."""

    exit_code = 3


class HubError(DoesItRunError):
    """The Hub did not answer, throttled us, or refused access."""

    exit_code = 4


class StackError(DoesItRunError):
    """No Python environment was found that can run the model on the target."""

    exit_code = 5


class WorkspaceError(DoesItRunError):
    """The workspace folder cannot be read or written."""

    exit_code = 6


class IsolationError(DoesItRunError):
    """A child process could not be started or watched."""

    exit_code = 7


class GraphStoreError(DoesItRunError):
    """The store of compiled graphs cannot be reached, read or written."""

    exit_code = 8
