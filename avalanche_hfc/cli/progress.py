"""A progress bar over the runs of a command; a plain line per run where the output is not a terminal."""

import click
import torch
from tqdm import tqdm

from avalanche_hfc.recipes import DEMO_METHODS
from avalanche_hfc.runs.demo import run_method
from avalanche_hfc.runs.folder import DemoFolder


def run_all(folder: DemoFolder, runs: list[tuple[str, int]]) -> None:
    """Every finished step is a row on the disk."""
    torch.set_num_threads(1)  # the model is too small for two
    recipe = folder.recipe
    with tqdm(total=len(runs) * recipe.num_steps * recipe.epochs, unit="epoch", disable=None, dynamic_ncols=True) as bar:
        for method, seed in runs:
            bar.set_description(f"{DEMO_METHODS[method]}, seed {seed}")
            for row in run_method(recipe, method, seed, bar.update):
                bar.set_postfix_str(f"accuracy {row['accuracy']:.3f} on {row['classes']} classes")
                folder.add(row)
            if bar.disable:
                click.echo(f"{DEMO_METHODS[method]}, seed {seed}: average {row['average']:.3f}, last {row['accuracy']:.3f}", err=True)
