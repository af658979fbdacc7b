"""`python -m avalanche_hfc` is `hfc`."""

from avalanche_hfc.cli import main

if __name__ == "__main__":
    main()
