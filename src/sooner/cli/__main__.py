"""`python -m sooner.cli` is `sooner`."""

from .main import main

main()
