"""Accuracy after each step, all methods, a panel per number of steps.

    python experiments/figure_accuracy.py --table imagenet100 --scale paper --data FOLDER --device
    cuda --seeds 3

As `hfc figure accuracy`; --help tells all options. Runs that are finished are not run again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("figure", "accuracy")
