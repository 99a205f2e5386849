"""What lies here, what lies in a store, and what only one of the two has; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from doesitrun.graphs.manifest import Manifest
from doesitrun.graphs.pairs import Pair
from doesitrun.targets import TARGETS


@dataclass(frozen=True)
class PairStatus:
    """One pair: counts of files, bytes, and how the two sides differ."""

    pair: Pair
    plans_here: int = 0
    entries_here: int = 0
    bytes_here: int = 0
    graphs_here: int = 0
    """Entries that are one compiled graph each; the others are parts of them."""
    plans_there: int | None = None
    """None where no store was asked, as below."""
    entries_there: int | None = None
    bytes_there: int | None = None
    graphs_there: int | None = None
    to_push: int | None = None
    """Entries that a plan here names and the store lacks."""
    to_pull: int | None = None
    """Entries that a plan there names and this workspace lacks."""


def pair_status(
    pair: Pair,
    sizes: Mapping[str, int],
    manifests: Mapping[str, Manifest],
    sizes_there: Mapping[str, int] | None = None,
    manifests_there: Mapping[str, Manifest] | None = None,
) -> PairStatus:
    """The status of one pair, from names and sizes alone; a store's are left away where none was asked."""
    here = PairStatus(pair, len(manifests), len(sizes), sum(sizes.values()), _graphs(pair, sizes))
    if sizes_there is None or manifests_there is None:
        return here
    return PairStatus(
        pair,
        here.plans_here,
        here.entries_here,
        here.bytes_here,
        here.graphs_here,
        len(manifests_there),
        len(sizes_there),
        sum(sizes_there.values()),
        _graphs(pair, sizes_there),
        len({entry.name for each in manifests.values() for entry in each.entries} - sizes_there.keys()),
        len({entry.name for each in manifests_there.values() for entry in each.entries} - sizes.keys()),
    )


def _graphs(pair: Pair, names: Mapping[str, int]) -> int:
    files = TARGETS[pair.target].GRAPHS
    return sum(files.is_graph(name) for name in names)
