"""The `hfc` command: parses, calls, prints."""

from avalanche_hfc.cli.main import main

__all__ = ["main"]
