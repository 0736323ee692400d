"""`python -m burnin`."""

import sys

from burnin import surprise

if __name__ == "__main__":  # the fork server imports this module in every child, which needs nothing of it
    surprise.expect("burnin")
    from burnin.cli import main

    sys.exit(main())
