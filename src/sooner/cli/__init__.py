"""The command line: one subcommand a file. Importing this imports nothing heavy."""

DONE, BUG, BAD, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: all is well, a parity bug, bad input or usage, Ctrl-C."""
