"""Compiled graphs: collected once, published, fetched, and proved to be used.

A run works with the cache folder of its own compiler and framework version. What it used of that folder becomes the
manifest of its plan; manifests and the entries they name go to a store and come from one. Layers, from left to right:
pairs < manifest < folder < stores < bucket, transfer, local, proof, command, status.
"""

from doesitrun.graphs.command import CopyCommand, command, copy_command, copying, entries_uri
from doesitrun.graphs.folder import Use, hashed, scan, using
from doesitrun.graphs.local import LocalGraphs, pruned
from doesitrun.graphs.manifest import Entry, Manifest
from doesitrun.graphs.pairs import Pair, difference, is_of_pair, nearest, pair_of
from doesitrun.graphs.proof import sentence, shape_of, usable, why_missed
from doesitrun.graphs.status import PairStatus, pair_status
from doesitrun.graphs.stores import Store, open_store
from doesitrun.graphs.transfer import Pruned, Pulled, Pushed, Shelf, prune, pull, push, shelf, shelves

__all__ = [
    "CopyCommand",
    "Entry",
    "LocalGraphs",
    "Manifest",
    "Pair",
    "PairStatus",
    "Pruned",
    "Pulled",
    "Pushed",
    "Shelf",
    "Store",
    "Use",
    "command",
    "copy_command",
    "copying",
    "difference",
    "entries_uri",
    "hashed",
    "is_of_pair",
    "nearest",
    "open_store",
    "pair_of",
    "pair_status",
    "prune",
    "pruned",
    "pull",
    "push",
    "scan",
    "sentence",
    "shape_of",
    "shelf",
    "shelves",
    "usable",
    "using",
    "why_missed",
]
