"""Records as people read them in a terminal. Text from outside is shown as it is, never as markup or control codes."""

from doesitrun.screen.plans import plan_json, show_plan
from doesitrun.screen.progress import announce, progress, step_of, warn
from doesitrun.screen.replays import replay_json, show_repeats, show_replay
from doesitrun.screen.rows import show_demo, show_outcome, show_row
from doesitrun.screen.stacks import show_report, show_stacks, stack_json

__all__ = [
    "announce",
    "plan_json",
    "progress",
    "replay_json",
    "show_demo",
    "show_outcome",
    "show_plan",
    "show_repeats",
    "show_replay",
    "show_report",
    "show_row",
    "show_stacks",
    "stack_json",
    "step_of",
    "warn",
]
