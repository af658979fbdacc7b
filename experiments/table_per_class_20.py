"""Table 6: CIFAR-100 with 20 exemplars per class.

    python experiments/table_per_class_20.py --scale paper --data FOLDER --device cuda

As `hfc table per-class-20`; --help tells all options. Runs that are finished are not run again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("table", "per-class-20")
