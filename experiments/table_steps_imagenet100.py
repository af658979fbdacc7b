"""Table 8: accuracy after each of 10 steps on ImageNet-100.

    python experiments/table_steps_imagenet100.py --scale paper --data FOLDER --device cuda --seeds
    3

As `hfc table steps-imagenet100`; --help tells all options. Runs that are finished are not run
again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("table", "steps-imagenet100")
