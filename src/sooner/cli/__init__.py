"""The command line: one subcommand a file. Importing this imports nothing heavy."""
