"""Table 9: accuracy after each of 10 steps on ImageNet-1000.

    python experiments/table_steps_imagenet1000.py --scale paper --data FOLDER --device cuda --seeds
    3

As `hfc table steps-imagenet1000`; --help tells all options. Runs that are finished are not run
again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("table", "steps-imagenet1000")
