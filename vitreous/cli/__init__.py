"""The command line: one short file per command that parses, calls and prints."""
