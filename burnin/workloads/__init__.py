"""What a GPU is made to compute: one file a test family, run inside the child process of that GPU.

What belongs here: torch code that makes inputs, launches, checksums. It knows nothing of other GPUs and judges nothing.
Always true: the same (case, seed) gives the same bits on every healthy GPU of a vote key; exact cases on every device.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from burnin.processes.senses import Senses, Unfelt
from burnin.spec import Ballot, Case, Elements, Inject, Proof

if TYPE_CHECKING:
    import torch

    from burnin.collectives.fabric import Fabric


class MissingError(Exception):
    """A test cannot run here, and that says nothing about the GPU: one line, what is missing and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a workload may know about where it runs."""

    backend: str
    """`cuda` (NVIDIA, and ROCm builds of torch), `cpu` or `sim`."""
    device: "torch.device"
    inject: Inject | None
    """The fault planted on this GPU, if any; the workload hands its outputs through `burnin.inject`."""
    alive: Callable[[], None]
    """Call at least once a second of work: feeds the watchdog."""
    fabric: "Fabric | None" = None
    """How data travel to the other GPUs of the host, in tests over links; see `burnin.collectives`."""
    senses: Senses = field(default_factory=Unfelt)
    """What this GPU feels."""
    start_s: float | None = None
    """When all GPUs begin this ballot, on the host's monotonic clock; None: each at once."""
    begin: Callable[[], None] = lambda: None
    """Call when the launches of a ballot begin, if much came before them: what was felt until then is forgotten."""
    retention_s: float = 0.0
    """How long memory is to hold what was written, in the test of memory; 0: it is not tested."""


class Workload(Protocol):
    """One test. Stateless between calls, except for compiled kernels and buffers it may keep on the device."""

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        """The cases that exist on this backend, in the order of execution; sizes depend on the backend only.

        Raises:
            MissingError: There are none, because something is missing here.
        """

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """Make the inputs of `seed`, poison the output, launch `launches` times, checksum every output."""

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """Compute the result of an exact case once and prove or refute it on the CPU (never called on others)."""

    def examine(
        self, ctx: Context, case: Case, *, seed: int, launches: int, right: str | None, tiles: tuple[int, ...]
    ) -> Elements | None:
        """Compute a result that was wrong again, and say which elements are wrong.

        Args:
            ctx: where this runs.
            case: the case in which this GPU was wrong.
            seed: of the ballot in which it was wrong.
            launches: at most so many; an intermittent fault may stay away.
            right: checksum of the right result; None when nobody gave it, so that every result is wrong.
            tiles: numbers of the tiles that differed; empty when it is not known.

        Returns:
            None when it was not wrong again, or when there is nothing right to compare with.
        """
