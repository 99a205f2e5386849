"""The kinds of accelerator, one module each; outsiders add theirs by an entry point `doesitrun.targets`."""

from __future__ import annotations

from importlib.metadata import entry_points

from doesitrun.records import Device
from doesitrun.targets import cpu, cuda, neuron
from doesitrun.targets.protocol import Target

TARGETS: dict[str, Target] = {"neuron": neuron, "cuda": cuda, "cpu": cpu}
TARGETS |= {point.name: point.load() for point in entry_points(group="doesitrun.targets")}

DEVICES: dict[str, Device] = {name: device for target in TARGETS.values() for name, device in target.DEVICES.items()}

__all__ = ["DEVICES", "TARGETS"]

ORACLE = cpu.NAME
"""The target whose ranks any machine has: it tells a fault of the library from one of another target."""
