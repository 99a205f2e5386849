"""Benches: each prints a table for people and writes its figures to bench/results/NAME.json.

Machines are shared and noisy, so a figure stands beside the plain alternative, measured in the same run.
"""
