"""Scripts that run in a stack's own Python; they import nothing of this package, and it imports none of them.

Each is started as `python SCRIPT REQUEST.json ANSWER.json` and writes its answer whole or not at all.
"""
