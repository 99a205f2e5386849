"""Rows on disk: one folder per attempt, and the dataset that is made of them.

`owner` and `ledger` say whose a file is, `table` is the Parquet form of rows, `accounts` says which row of a plan
counts, `card` writes the dataset's README, and `workspace` puts them together.
"""
