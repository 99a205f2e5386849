"""Stands for the Neuron compiler's Python package, so that its version can be read. It compiles nothing."""

__version__ = "2.28.7631.0+emulated"
