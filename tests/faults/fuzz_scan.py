"""A fuzz target for the log scanner: `python tests/faults/fuzz_scan.py tests/faults/inputs` with atheris installed.

Not run by default. A crash's input belongs into `inputs/` with a header, as a test for ever.
"""

import sys

import atheris

with atheris.instrument_imports():
    from fleetd.config.faults import load_catalogue
    from fleetd.core.faults.scan import LogScan

CATALOGUE = load_catalogue()


def one(data: bytes) -> None:
    """Scan one input in two blocks: the seam between blocks is part of what is tested."""
    log = LogScan(CATALOGUE)
    log.feed(data[: len(data) // 2])
    log.feed(data[len(data) // 2 :])
    log.finish()


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
