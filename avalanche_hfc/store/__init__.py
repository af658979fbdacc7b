"""A run folder on disk: rows, checkpoints, lock, and the reader of all of them."""
