"""What a vendor's reader offers inside the helper process, and how it says that something went wrong.

The helper must stay small (its memory counts as the agent's): this module and the readers import next to nothing.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

Number = float | None | list[tuple[str, float]]
"""A metric (None: cannot be had; NaN: the library gave a number that is none) or a family: [(label, number)]."""
Reading = Mapping[str, Number]
"""Fields of `fleetd.model.telemetry.GpuSample` without `gpu` and `at_s`, in its units; what is not there may be left
out. Whether a number can be true is judged by the parent (`readings.py`), for all vendors alike."""

PROCESSES = "process_ids"
"""A further entry of a slow reading, which is no metric: [(process id, memory in bytes)] of those that hold the GPU."""


class VendorError(Exception):
    """The library or a GPU refused; the message is one line for an operator."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing
        """There is no library or driver at all: a matter of installation, not of a sick GPU."""


class Reader(Protocol):
    """One vendor's library. Any call may hang: only the helper's parent can know, and gives the helper up.

    A vendor of one's own is a class like this and `devices: {backend: "my_module:MyReader"}`; the agent's Python must
    find the module. Nothing else is asked of it: hangs, deaths and insane values are met by the helper's parent, and
    metrics and families that it sends under the catalogue's names are exported and sent to the controller.
    """

    def open(self) -> None:
        """Import and initialise the library. Raises VendorError."""

    def inventory(self) -> list[dict[str, Any]]:
        """Fields of `fleetd.model.host.Gpu` of each GPU that can be named. Raises VendorError."""

    def sample(self, gpu: str, *, slow: bool) -> Reading:
        """Read one GPU; with `slow` the expensive readings too, which the parent keeps until the next.

        Raises VendorError when the GPU does not answer. A reading that the part does not have is None.
        """

    def close(self) -> None:
        """Let go of the library; never raises."""


@runtime_checkable
class Powered(Protocol):
    """A reader that tells limits and draw by themselves, as often as the governor looks. Not asked of one."""

    def power(self, gpu: str, *, energy: bool, samples: bool) -> Mapping[str, Any]:
        """Fields of `fleetd.model.power.PowerReading`. Raises VendorError.

        A knob is `[name, set, low, high, default]`; `samples` (`[[seconds, watts]]`) are those since the last asking.
        """


@runtime_checkable
class Placed(Protocol):
    """A reader that can go straight to a GPU whose place is known. Not asked of one; NVIDIA's and AMD's do it.

    To look for a GPU among all touches the others, of which one may hang: the reason why this helper was started.
    """

    def places(self, known: Mapping[str, str]) -> None:
        """GPU → PCI address, as an earlier helper named them. Before `open`."""
