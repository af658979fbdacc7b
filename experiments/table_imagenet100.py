"""Table 2: all methods on ImageNet-100 with ViT-Base and 2000 exemplars.

    python experiments/table_imagenet100.py --scale paper --data FOLDER --device cuda --seeds 3

As `hfc table imagenet100`; --help tells all options. Runs that are finished are not run again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("table", "imagenet100")
