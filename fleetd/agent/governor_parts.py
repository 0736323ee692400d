"""Which GPUs the governor looks after, and what holds for them; found anew only when there are others."""

from collections.abc import Mapping, Sequence

from fleetd.agent.governor_ports import Plan
from fleetd.core.power.govern import GovernConfig
from fleetd.model.envelope import Envelope
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId


class Parts:
    """The host's GPUs, and those among them that the envelope is for."""

    def __init__(self, envelope: Envelope, plan: Plan) -> None:
        self._envelope, self._plan = envelope, plan
        self._gpus: tuple[Gpu, ...] = ()
        self._all: Mapping[GpuId, Gpu] = {}
        self._governed: tuple[Gpu, ...] = ()

    def look(self, gpus: Sequence[Gpu]) -> tuple[Mapping[GpuId, Gpu], Mapping[GpuId, GovernConfig]]:
        """All GPUs, and what holds now for those that are governed: the plan is asked once for each firmware."""
        if (now := tuple(gpus)) != self._gpus:
            self._gpus, self._all = now, {gpu.gpu: gpu for gpu in now}
            self._governed = tuple(gpu for gpu in self._all.values() if self._envelope.is_for(gpu.vendor, gpu.sku))
        plans = {firmware: self._plan(firmware) for firmware in {gpu.firmware for gpu in self._governed}}
        return self._all, {gpu.gpu: plans[gpu.firmware] for gpu in self._governed}
