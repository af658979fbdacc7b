"""Table 3: all methods on ImageNet-1000 with ViT-Base and 20000 exemplars.

    python experiments/table_imagenet1000.py --scale paper --data FOLDER --device cuda --seeds 3

As `hfc table imagenet1000`; --help tells all options. Runs that are finished are not run again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("table", "imagenet1000")
