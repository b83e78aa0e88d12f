"""Benchmarks: every row is a ratio against something else measured in the same run, never a time on its own."""
