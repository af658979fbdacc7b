"""A progress bar over the runs of a command; a plain line per run where the output is not a terminal."""

from collections.abc import Iterable
from pathlib import Path

import click
import torch
from tqdm import tqdm

from avalanche_hfc.recipes import DEMO_METHODS, DemoRecipe
from avalanche_hfc.runs.demo import open_folder, run_method


def run_all(recipe: DemoRecipe, methods: list[str], seeds: Iterable[int], folder: Path) -> None:
    """Run what is not in the folder yet; every finished step is a row on the disk."""
    torch.set_num_threads(1)  # the model is too small for two
    file = open_folder(folder, recipe)
    done = {(row["method"], int(row["seed"]), int(row["step"])) for row in file.rows()}
    runs = [(method, seed) for seed in seeds for method in methods if (method, seed, recipe.num_steps - 1) not in done]
    with tqdm(total=len(runs) * recipe.num_steps * recipe.epochs, unit="epoch", disable=None, dynamic_ncols=True) as bar:
        for method, seed in runs:
            bar.set_description(f"{DEMO_METHODS[method]}, seed {seed}")
            for row in run_method(recipe, method, seed, bar.update):
                bar.set_postfix_str(f"accuracy {row['accuracy']:.3f} on {row['classes']} classes")
                if (method, seed, row["step"]) not in done:
                    file.append(row)
            if bar.disable:
                click.echo(f"{DEMO_METHODS[method]}, seed {seed}: average {row['average']:.3f}, last {row['accuracy']:.3f}", err=True)
