"""Rounds in memory: `engine` runs users and server over real messages, `workers` spread users over processes."""
