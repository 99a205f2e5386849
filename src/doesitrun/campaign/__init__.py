"""The only composer: models through the layers, from their names to their rows."""

from doesitrun.campaign.context import Ask, Context, Prepared, Progress, Watch
from doesitrun.campaign.planning import prepare, run_py
from doesitrun.campaign.repeats import Flakes, flakes, repeat
from doesitrun.campaign.replays import attempts_named, replay
from doesitrun.campaign.trial import graphs_folder, test

__all__ = [
    "Ask",
    "Context",
    "Flakes",
    "Prepared",
    "Progress",
    "Watch",
    "attempts_named",
    "flakes",
    "graphs_folder",
    "prepare",
    "repeat",
    "replay",
    "run_py",
    "test",
]
