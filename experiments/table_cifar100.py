"""Table 1: all methods on CIFAR-100 with ViT-Base and 2000 exemplars.

    python experiments/table_cifar100.py --scale demo

As `hfc table cifar100`; --help tells all options. Runs that are finished are not run again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("table", "cifar100")
