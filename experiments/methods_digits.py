"""Every method on split digits, as it is and with both losses of HFC: rows, a summary over seeds and the table of the README.

    python experiments/methods_digits.py --out experiments/results/methods_digits

The setting is that of `hfc demo`: ten classes in five steps, 20 exemplars, the same small ViT, AdamW and number of epochs for all.
Runs that are in the folder already are not run again; after an interruption the same command goes on.
"""

import argparse
import shlex
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

from tqdm import tqdm

from avalanche_hfc.recipes import DemoRecipe
from avalanche_hfc.runs.quiet import quiet_host

OPTIONS = {
    # The published β of 0.94 to 0.98 are for 20 to 200 exemplars of a class. Here there are 2 to 10: an old class would weigh up to 17
    # times a new one. 0.8 was the best of four pairs for the method alone, one seed.
    "foster": dict(beta=0.8, compress_beta=0.8),
}


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """What was asked for; a name that does not exist ends the program before anything is written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=positive, default=5, metavar="N", help="seeds 0 … N-1, each with its own class order (default 5)")
    parser.add_argument("--jobs", type=positive, default=2, metavar="N", help="processes, one thread each (default 2)")
    parser.add_argument("--out", type=Path, default=Path("methods_digits"), metavar="FOLDER", help="result folder (default methods_digits)")
    parser.add_argument("--only", nargs="+", default=None, metavar="NAME", help="these methods (default: all)")
    parser.add_argument("--epochs", type=positive, default=DemoRecipe.epochs, metavar="N", help="epochs of a step (default 20)")
    arguments = parser.parse_args(argv)
    quiet_host()
    from avalanche_hfc.runs.methods import MethodsFolder, all_runs
    from avalanche_hfc.strategies import STRATEGIES

    try:
        wanted = all_runs(dict.fromkeys(arguments.only or STRATEGIES), range(arguments.seeds))
        arguments.folder = MethodsFolder(arguments.out, DemoRecipe(epochs=arguments.epochs), OPTIONS)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    arguments.runs = [run for run in wanted if run not in arguments.folder.done]
    return arguments


def run_all(folder, runs: list, jobs: int) -> list:
    """The runs that failed. A finished run's rows are on the disk before the next result is looked at."""
    import torch

    from avalanche_hfc.runs.methods import train_run
    from avalanche_hfc.runs.pool import outcomes

    torch.set_num_threads(1)  # the model is too small for two
    work = partial(train_run, recipe=folder.recipe, options=OPTIONS)
    start, failed = time.monotonic(), []
    with tqdm(total=len(runs), unit="run", disable=None, dynamic_ncols=True) as bar, closing(outcomes(work, runs, jobs=jobs)) as results:
        for number, (run, rows, error) in enumerate(results, 1):
            if error is None:
                folder.add(rows)
                said = f"{run}: average {rows[-1]['average']:.3f}, last {rows[-1]['accuracy']:.3f}"
            else:
                failed.append(run)
                said = f"{run} failed:\n{error}"
            bar.update()
            if bar.disable:
                left = (time.monotonic() - start) / number * (len(runs) - number)
                print(f"{number}/{len(runs)}, about {left / 60:.0f} min left: {said}", file=sys.stderr, flush=True)
            elif error is None:
                bar.set_postfix_str(said)
            else:
                bar.write(said, file=sys.stderr)
    return failed


def main(argv: list[str] | None = None) -> int:
    same_command = shlex.join(["python", sys.argv[0], *(sys.argv[1:] if argv is None else argv)])
    arguments = arguments_of(argv)
    folder, runs = arguments.folder, arguments.runs
    for run in folder.dropped:
        print(f"{run}: had some of its rows only. They are dropped; the run is to be done again.", file=sys.stderr)
    if runs and (changed := folder.begin(same_command, arguments.jobs)):
        print(f"The rows so far were made elsewhere ({changed}). Single seeds may differ by several points.", file=sys.stderr)
    try:
        failed = run_all(folder, runs, arguments.jobs) if runs else []
    except KeyboardInterrupt:
        print(f"\nInterrupted. The rows of finished runs are kept; this goes on:\n{same_command}", file=sys.stderr)
        return 130
    if not folder.file.rows():
        print(f"Nothing to report: {folder.file.path} has no rows.", file=sys.stderr)
        return 1
    from avalanche_hfc.report.methods import write_report

    print(write_report(arguments.out))
    print(f"Rows: {folder.file.path}; summary.csv and table.md beside it.")
    if failed:
        print(f"Failed: {'; '.join(map(str, failed))}. The same command tries them again.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
