"""Cores and memory shared among jobs: who may start is decided by `schedule`, and where a child runs by a pool.

`local` runs children on this machine, `ray` on the nodes of a Ray cluster; `dispatch` is what both have in common.
"""

from doesitrun.pool.dispatch import Dispatch, Done, Job
from doesitrun.pool.local import HERE, LocalPool
from doesitrun.pool.protocol import PlaceLostError, Pool, Seat
from doesitrun.pool.schedule import Lease, Need, Place, helpers_of

__all__ = ["HERE", "Dispatch", "Done", "Job", "Lease", "LocalPool", "Need", "Place", "PlaceLostError", "Pool", "Seat", "helpers_of"]
