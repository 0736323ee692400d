"""`python -m fleetd`."""

from fleetd.cli import main

if __name__ == "__main__":
    main(prog_name="fleetd")
