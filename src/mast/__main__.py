"""``python -m mast``: the command line."""

from mast.cli.main import main

main()
