"""When a planted fault strikes: by its rate, the operation, the load and the temperature; and who may look on."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch

from burnin.inject.faults import FAULTS, Fault, eligible
from burnin.inject.models import Accumulator, Draw
from burnin.keys import derive
from burnin.spec import Case, Inject

Ear = Callable[[torch.Tensor, str, bool], None]
"""(output of a launch, operation, whether a fault changed it): sees what the checksum will see."""


@dataclass(slots=True)
class Scene:
    """What surrounds a series of launches: the case, how long the load has been on, how hot it is."""

    case: Case
    celsius: Callable[[], float | None] = lambda: None
    ear: Ear | None = None
    results: int = 0
    """Results handed over since the pause before the series."""


_SCENE: ContextVar[Scene | None] = ContextVar("scene", default=None)


@contextmanager
def scene(here: Scene) -> Iterator[None]:
    """Everything that is handed to an injector inside belongs to `here`."""
    token = _SCENE.set(here)
    try:
        yield
    finally:
        _SCENE.reset(token)


def load_paused() -> None:
    """The load has paused inside a series of launches: what comes next is a load step again."""
    here = _SCENE.get()
    if here is not None:
        here.results = 0


@dataclass(slots=True)
class Injector:
    """Plants one fault in the launches of one GPU; without a fault it does nothing and costs nothing.

    Lane faults are properties of the chip and stay where they are for a whole run; of the others a persistent fault
    (rate 1) does the same at every launch, an intermittent one draws anew each time it hits.

    Args:
        inject: the fault, or None.
        launches: launches seen so far. It grows over the whole run, so that a retest of a seed draws anew.
        fired: launches whose bytes really changed.
    """

    inject: Inject | None
    launches: int = 0
    fired: int = 0

    def hit(self, output: torch.Tensor, accumulator: Accumulator | None = None, op: str = "") -> bool:
        """Count a launch and, if the fault strikes it, change its output in place.

        Args:
            output: contiguous result of the launch; more than two dimensions are read as rows of the last.
            accumulator: for a rounded output, recomputes pieces of it before rounding (rows and columns of the
                two-dimensional view); without it arithmetic faults strike the output itself.
            op: the operation whose result this is, for cases that consist of several; faults of one operation only
                (F07) look for it.

        Returns:
            Whether any byte of the output changed (compared, not assumed; this copies the output and waits for the
            device, which only a run with a planted fault pays for).
        """
        launch, here = self.launches, _SCENE.get()
        self.launches += 1
        changed = False
        if self.inject is not None and output.numel() and self._strikes(launch, op, here):
            changed = self._strike(output, accumulator, launch, self.inject)
            self.fired += changed
        if here is not None:
            here.results += 1
            if here.ear is not None:
                here.ear(output, op, changed)
        return changed

    def _strikes(self, launch: int, op: str, here: Scene | None) -> bool:
        inject = self.inject
        if inject is None:
            return False
        fault = FAULTS[inject.fault]
        drawn = derive(inject.seed, "strikes", launch) < inject.rate * fault.share * 2**64
        return drawn and _present(fault, op, here, launch)

    @staticmethod
    def _strike(output: torch.Tensor, accumulator: Accumulator | None, launch: int, inject: Inject) -> bool:
        chip = derive(inject.seed, inject.fault)
        key = derive(chip, "persistent" if inject.rate >= 1 else launch)
        matrix = output.detach().view(-1, output.shape[-1]) if output.dim() > 1 else output.detach().view(1, -1)
        before = matrix.clone()
        with torch.no_grad():
            FAULTS[inject.fault].strike(matrix, accumulator, Draw(key, chip))
        return not torch.equal(before.view(torch.uint8), matrix.view(torch.uint8))


def _present(fault: Fault, op: str, here: Scene | None, launch: int) -> bool:
    """Whether the broken operation runs here and the fault's condition holds."""
    if here is not None and not eligible(fault, here.case):
        return False
    if fault.ops and op and re.search(fault.ops, op) is None:
        return False
    if fault.first_launches is not None and (here.results if here else launch) >= fault.first_launches:
        return False
    if fault.above_celsius is not None:
        celsius = here.celsius() if here else None
        return celsius is not None and celsius > fault.above_celsius
    return True
