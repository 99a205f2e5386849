"""Records as people read them in a terminal. Text from outside is shown as it is, never as markup or control codes.

Each screen is imported when one of its names is asked for: a command should wait for no other's.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from doesitrun.screen.progress import announce, progress, step_of, warn

if TYPE_CHECKING:
    from doesitrun.screen.campaigns import campaign_screen, show_summary
    from doesitrun.screen.graphs import show_command, show_pruned, show_pulled, show_pushed, show_status
    from doesitrun.screen.hub import show_import, show_publication, show_ranking, show_selection
    from doesitrun.screen.lookup import show_comparison, show_found, show_notices, show_page
    from doesitrun.screen.plans import plan_json, show_plan
    from doesitrun.screen.replays import replay_json, show_repeats, show_replay
    from doesitrun.screen.rows import show_demo, show_outcome, show_row
    from doesitrun.screen.serving import offer_serving, show_address, show_space
    from doesitrun.screen.stacks import show_report, show_stacks, stack_json

__all__ = [
    "announce",
    "campaign_screen",
    "offer_serving",
    "plan_json",
    "progress",
    "replay_json",
    "show_address",
    "show_command",
    "show_comparison",
    "show_demo",
    "show_found",
    "show_import",
    "show_notices",
    "show_outcome",
    "show_page",
    "show_plan",
    "show_pruned",
    "show_publication",
    "show_pulled",
    "show_pushed",
    "show_ranking",
    "show_repeats",
    "show_replay",
    "show_report",
    "show_row",
    "show_selection",
    "show_space",
    "show_stacks",
    "show_status",
    "show_summary",
    "stack_json",
    "step_of",
    "warn",
]

_PLACES = {
    "campaigns": (
        "campaign_screen",
        "show_summary",
    ),
    "graphs": (
        "show_command",
        "show_pruned",
        "show_pulled",
        "show_pushed",
        "show_status",
    ),
    "hub": (
        "show_import",
        "show_publication",
        "show_ranking",
        "show_selection",
    ),
    "lookup": (
        "show_comparison",
        "show_found",
        "show_notices",
        "show_page",
    ),
    "plans": (
        "plan_json",
        "show_plan",
    ),
    "replays": (
        "replay_json",
        "show_repeats",
        "show_replay",
    ),
    "rows": (
        "show_demo",
        "show_outcome",
        "show_row",
    ),
    "serving": (
        "offer_serving",
        "show_address",
        "show_space",
    ),
    "stacks": (
        "show_report",
        "show_stacks",
        "stack_json",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"doesitrun.screen.{module}"), name)
    message = f"module 'doesitrun.screen' has no attribute {name!r}"
    raise AttributeError(message)
