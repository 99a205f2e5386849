"""A Ray cluster of one head and two nodes with pretend cores, as a process: prints its address, obeys lines on stdin.

`lose` ends a node as a power cut would; `add` starts another; `quit`, or the end of stdin, ends everything.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

CORES = 8
RESOURCE = "neuron_cores"
STORE = {"object_store_memory": 100_000_000}


def main() -> None:
    cluster = Cluster()
    cluster.add_node(num_cpus=1, **STORE)

    def add() -> object:
        return cluster.add_node(num_cpus=2, resources={RESOURCE: CORES}, **STORE)

    nodes = [add(), add()]
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "lose":
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        elif line.strip() == "add":
            nodes.append(add())
        else:
            break
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
