"""Convergence of HFC over the epochs of all steps, ImageNet-100 in 5 and 10 steps.

    python experiments/figure_convergence.py --scale paper --data FOLDER --device cuda --seeds 3

As `hfc figure convergence`; --help tells all options. Runs that are finished are not run again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("figure", "convergence")
