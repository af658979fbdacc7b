"""The one place where warnings that the host raises about itself are silenced, for our own
commands. A user's program keeps them.
"""

import warnings
from pathlib import Path
from typing import TextIO

HOST_PACKAGES = {"avalanche", "qpsolvers"}


def silence_host() -> None:
    """Not by a filter: Avalanche's deprecation helper puts filters of its own in front of all
    others at every call.
    """
    show = warnings.showwarning

    def show_ours(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if HOST_PACKAGES.isdisjoint(Path(filename).parts):
            show(message, category, filename, lineno, file, line)

    warnings.showwarning = show_ours
