"""Table 10: the losses of HFC inside other methods, after each of 10 steps on CIFAR-100.

    python experiments/table_steps_plug_and_play.py --scale paper --data FOLDER --device cuda

As `hfc table steps-plug-and-play`; --help tells all options. Runs that are finished are not run
again.
"""

from one_command import hfc

if __name__ == "__main__":
    hfc("table", "steps-plug-and-play")
