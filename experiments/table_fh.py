"""Table 7: forgetting heterogeneity beside average accuracy on CIFAR-100 in 5 steps.

    python experiments/table_fh.py --scale demo --seeds 3

As `hfc table fh`; --help tells all options. Runs that are finished are not run again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("table", "fh")
