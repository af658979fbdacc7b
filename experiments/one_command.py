"""What the scripts of the tables share: each is one `hfc` command whose name is filled in."""

import sys

from avalanche_hfc.lab.cli import main


def hfc(*words: str) -> None:
    """`hfc WORDS` with the arguments that this program was given."""
    sys.argv = ["hfc", *words, *sys.argv[1:]]
    main()
