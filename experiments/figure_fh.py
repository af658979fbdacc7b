"""Forgetting heterogeneity against average accuracy on CIFAR-100 in 5 steps.

    python experiments/figure_fh.py --scale demo --seeds 3

As `hfc figure fh`; --help tells all options. Runs that are finished are not run again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("figure", "fh")
