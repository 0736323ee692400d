"""`python -m burnin`."""

import sys

from burnin.cli import main

if __name__ == "__main__":  # the fork server imports this module in every child
    sys.exit(main())
