"""The only composer: models through the layers, from their names to their rows."""

from doesitrun.campaign.caching import graphs_folder
from doesitrun.campaign.context import Ask, Context, Prepared, Progress, Watch
from doesitrun.campaign.listing import Listed, read_list
from doesitrun.campaign.many import Choice, Summary, conduct
from doesitrun.campaign.opening import open_contexts, open_lists, open_pool
from doesitrun.campaign.planning import prepare, run_py
from doesitrun.campaign.repeats import Flakes, flakes, repeat
from doesitrun.campaign.replays import attempts_named, replay
from doesitrun.campaign.trial import test

__all__ = [
    "Ask",
    "Choice",
    "Context",
    "Flakes",
    "Listed",
    "Prepared",
    "Progress",
    "Summary",
    "Watch",
    "attempts_named",
    "conduct",
    "flakes",
    "graphs_folder",
    "open_contexts",
    "open_lists",
    "open_pool",
    "prepare",
    "read_list",
    "repeat",
    "replay",
    "run_py",
    "test",
]
