"""The only composer: models through the layers, from their names to their rows."""

from doesitrun.campaign.caching import graphs_folder
from doesitrun.campaign.context import Ask, Context, Prepared, Progress, Watch
from doesitrun.campaign.planning import prepare, run_py
from doesitrun.campaign.trial import test

__all__ = ["Ask", "Context", "Prepared", "Progress", "Watch", "graphs_folder", "prepare", "run_py", "test"]
