"""`python -m avalanche_hfc` is `hfc`."""

from avalanche_hfc.lab.cli import main

if __name__ == "__main__":
    main()
