"""Records as people read them in a terminal. Text from outside is shown as it is, never as markup or control codes."""

from doesitrun.screen.lookup import show_comparison, show_found, show_notices, show_page
from doesitrun.screen.plans import plan_json, show_plan
from doesitrun.screen.progress import announce, progress, step_of, warn
from doesitrun.screen.rows import show_demo, show_outcome, show_row
from doesitrun.screen.serving import offer_serving, show_address, show_space
from doesitrun.screen.stacks import show_report, show_stacks, stack_json

__all__ = [
    "announce",
    "offer_serving",
    "plan_json",
    "progress",
    "show_address",
    "show_comparison",
    "show_demo",
    "show_found",
    "show_notices",
    "show_outcome",
    "show_page",
    "show_plan",
    "show_report",
    "show_row",
    "show_space",
    "show_stacks",
    "stack_json",
    "step_of",
    "warn",
]
