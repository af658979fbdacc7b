"""The `hfc` command: parses, calls, prints."""

from avalanche_hfc.lab.cli.main import main

__all__ = ["main"]
