"""`fleetd agent` on a host whose jobs hold a GPU that is not there: `/dev/full` stands for the GPU's device file.

Which file is which GPU, the driver and the kernel say on a real host; here, the variable `JOBS_GPU` (a PCI address).
That a process has the file open, the agent sees as on any host.
"""

import os
from collections.abc import Iterable

from fleetd.__main__ import main
from fleetd.compose import agent

DEVICE = "/dev/full"


def addresses(devices: Iterable[tuple[int, int]]) -> set[str]:
    """The PCI addresses of the GPUs among character devices."""
    device = os.stat(DEVICE).st_rdev  # noqa: PTH116 - its numbers, as of an open file
    return {os.environ["JOBS_GPU"]} if (os.major(device), os.minor(device)) in set(devices) else set()


if __name__ == "__main__":
    vars(agent)["addresses"] = addresses
    main(prog_name="fleetd")
