"""What docs/results.md and README.md show of real images, with figures, from committed rows.

    python experiments/results_page.py ROWS ROOT

ROWS is a folder that experiments/collect.py has written, ROOT the folder of the README. Nothing is
trained.
"""

import argparse
from pathlib import Path

from real_images.page import files_of

from avalanche_hfc.lab.rows import replace_file


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, metavar="ROWS", help="folder of the committed rows")
    parser.add_argument("root", type=Path, metavar="ROOT", help="folder of the README")
    arguments = parser.parse_args()
    try:
        files = files_of(arguments.rows, arguments.root)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    for path, content in files.items():
        replace_file(path, content)
    print(f"Wrote {', '.join(map(str, files))}.")


if __name__ == "__main__":
    main()
