"""The command line: options, verbs, and the one place where errors become exit codes."""
