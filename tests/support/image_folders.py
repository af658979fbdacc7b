"""Small folders of images, and `hfc` called in this process."""

from pathlib import Path

import numpy as np
from click.testing import CliRunner
from PIL import Image

from avalanche_hfc.lab.cli import commands

COLOURS = {
    "ant": (230, 20, 20),
    "bee": (20, 230, 20),
    "cat": (20, 20, 230),
    "dog": (230, 230, 20),
    "emu": (230, 20, 230),
    "fox": (20, 230, 230),
    "gnu": (20, 20, 20),
    "hen": (230, 230, 230),
}
TINY = ("--image-size", "16", "--epochs", "3", "--batch-size", "8", "--mem-size", "12")


def noisy(name, seed, side=16):
    noise = np.random.default_rng(seed).normal(0, 25, (side, side, 3))
    return np.clip(np.array(COLOURS[name]) + noise, 0, 255).astype(np.uint8)


def make_folder(root, names, count=7):
    """A folder for each class. By `split_folder` the images 1 and 6 are test images."""
    for name in names:
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(noisy(name, number)).save(root / name / f"{number}.png")
    return root


def hfc(*arguments):
    """What is printed to stdout. An error of the command is raised."""
    result = CliRunner().invoke(
        commands, [str(word) for word in arguments], catch_exceptions=False, standalone_mode=False
    )
    return result.stdout


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }
