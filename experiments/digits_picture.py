"""The picture of digits in docs/results.md: accuracy after each step, from the rows of `hfc demo`.

    python experiments/digits_picture.py experiments/results/demo/steps.csv docs/images/digits.png

Nothing is trained.
"""

import argparse
from io import BytesIO
from pathlib import Path

import pandas as pd
from PIL import Image

from avalanche_hfc.report.figures import as_png
from avalanche_hfc.report.table_figures import demo_curves

COLORS = 64  # of the palette: a quarter of the file size, no visible difference


def draw(rows: Path, picture: Path) -> None:
    """Draw the curves of a CSV file of rows as a PNG with a palette."""
    with Image.open(BytesIO(as_png(demo_curves(pd.read_csv(rows))))) as image:
        image.convert("RGB").quantize(COLORS).save(picture, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", type=Path, help="steps.csv of the demonstration")
    parser.add_argument("picture", type=Path, help="the PNG file to write")
    arguments = parser.parse_args()
    draw(arguments.rows, arguments.picture)


if __name__ == "__main__":
    main()
