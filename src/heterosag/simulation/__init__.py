"""Rounds in memory: `engine` runs users and server over real messages, `workers` run users in processes."""
