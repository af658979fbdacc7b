"""Runs: start, rows, what is on the disk."""
