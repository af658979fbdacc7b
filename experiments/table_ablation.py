"""Table 5: the parts of HFC on CIFAR-100 and ImageNet-100.

    python experiments/table_ablation.py --scale small --data FILE --jobs 2

As `hfc table ablation`; --help tells all options. Runs that are finished are not run again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("table", "ablation")
