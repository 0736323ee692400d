"""What the agent knows of power beside the governor's own readings: from the kernel log and the energy counters."""

from collections.abc import Callable, Collection, Iterable, Sequence

import structlog

from fleetd.core.faults.observation import device_key
from fleetd.core.power import smoothing
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.telemetry import GpuSample

_log = structlog.get_logger(__name__)
_COUNTER = "energy_joules_total"


class PowerOutside:
    """Speaks against boost. `hear` and `against` are called on the agent's loop."""

    def __init__(
        self,
        *,
        standing: Iterable[tuple[str, GpuId | None]] = (),
        samples: Callable[[], Sequence[GpuSample]] = tuple,
    ) -> None:
        """Begin with what stands.

        Args:
            standing: code and GPU of the faults that stand from before a restart of the agent.
            samples: the sampler's latest; the governor does not read the dear energy counter itself.
        """
        self._smoothing = smoothing.standing(smoothing.Word(code=code, gpu=gpu) for code, gpu in standing)
        self._samples = samples
        self._backward: dict[GpuId, float] = {}
        self._read: Sequence[GpuSample] = ()
        self._now: dict[GpuId, str] = {}

    def hear(self, code: str, gpu: GpuId | None, device: str | None) -> None:
        """Take a code of the fault catalogue, as often as the kernel log tells it; `device` as the line names it."""
        after = smoothing.heard(self._smoothing, smoothing.Word(code=code, gpu=gpu, device=device))
        if after.lost != self._smoothing.lost:
            lost = len(after.lost) > len(self._smoothing.lost)
            (_log.warning if lost else _log.info)("power_smoothing", gpu=gpu or device, code=code, lost=lost)
        self._smoothing = after

    def look(self, gpus: Collection[Gpu]) -> None:
        """Once a turn, before `against`: which GPUs there are, and whether an energy counter went backward since."""
        if gpus and self._smoothing.spoke:
            places = {key: gpu.gpu for gpu in gpus if (key := device_key(gpu.pci_address)) is not None}
            self._smoothing = smoothing.placed(self._smoothing, places)
        samples = self._samples()
        self._now = {}
        if samples is self._read:
            return
        self._read = samples
        for sample in samples:
            count = dict(sample.implausible_readings_total).get(_COUNTER, 0.0)
            if count > self._backward.get(sample.gpu, count):
                self._now[sample.gpu] = "the energy counter went backward or gave no number"
            self._backward[sample.gpu] = count
        self._backward = {sample.gpu: self._backward[sample.gpu] for sample in samples}

    def against(self, gpu: GpuId) -> str:
        """Why there must be no boost; "": nothing is known."""
        return "; ".join(filter(None, (smoothing.why_lost(self._smoothing, gpu), self._now.get(gpu, ""))))

    def smoothing_lost(self, gpu: GpuId) -> bool | None:
        """See `GpuPower`."""
        return smoothing.is_lost(self._smoothing, gpu)
