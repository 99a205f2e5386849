"""Which ranked models are run, in what order, and why the others are not; pure.

`choice` decides, `hand` reads the few decisions that people take themselves, and `selected` is a line of the outcome.
"""

from doesitrun.select.choice import Wanted, choose
from doesitrun.select.hand import Hand, load_hand
from doesitrun.select.pace import Pace, Timed
from doesitrun.select.selected import Selected

__all__ = ["Hand", "Pace", "Selected", "Timed", "Wanted", "choose", "load_hand"]
