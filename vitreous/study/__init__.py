"""Experiments: a TOML of variants, seeds and data becomes runs, a table and a verdict."""
