"""`python -m doesitrun` is the command `doesitrun`."""

from doesitrun.cli import main

main()
