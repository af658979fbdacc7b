"""Table 4: the losses of HFC inside other methods, on CIFAR-100 and ImageNet-100.

    python experiments/table_plug_and_play.py --scale small --data FILE --jobs 2

As `hfc table plug-and-play`; --help tells all options. Runs that are finished are not run again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("table", "plug-and-play")
