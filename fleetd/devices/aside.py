"""The GPUs that are left alone because a call for them hung."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetd.devices.child import Child
from fleetd.model.ids import GpuId

_AGAIN_S = 60.0
_MAX_S = 3600.0
"""A GPU that hung once is asked again as soon as that call has returned: a driver that was busy for some seconds is no
driver that hangs, and silence that is only ours must not become a finding. From its second hang on it also has to wait,
which doubles with each hang up to the maximum."""
_FORGET_S = 3600.0
"""It counts as the first hang again when the GPU has answered for so long: one that is always slow starts a helper at
each of its hangs, and more for its neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aside:
    child: Child
    hangs: int
    not_before_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    hangs: int
    over_s: float


class Asides:
    """Remembers them until they have answered again. Bounded by the GPUs of the host."""

    def __init__(self) -> None:
        self._gpus: Mapping[GpuId, _Aside] = {}
        self._past: Mapping[GpuId, _Past] = {}

    def __contains__(self, gpu: GpuId) -> bool:
        return gpu in self._gpus

    def __len__(self) -> int:
        return len(self._gpus)

    def put(self, gpu: GpuId, child: Child, *, now_s: float) -> None:
        """A call for this GPU hung in that helper."""
        self._past = {other: past for other, past in self._past.items() if now_s - past.over_s < _FORGET_S}
        before = self._gpus.get(gpu) or self._past.get(gpu)
        hangs = before.hangs + 1 if before else 1
        wait_s = min(_AGAIN_S * 2.0 ** min(hangs - 2, 30), _MAX_S) if hangs > 1 else 0.0
        self._gpus = {**self._gpus, gpu: _Aside(child=child, hangs=hangs, not_before_s=now_s + wait_s)}

    def answered(self, gpu: GpuId, *, now_s: float) -> None:
        """It is like any other again."""
        if gpu in self._gpus:
            self._past = {**self._past, gpu: _Past(hangs=self._gpus[gpu].hangs, over_s=now_s)}
            self._gpus = {other: aside for other, aside in self._gpus.items() if other != gpu}

    def rests(self, gpu: GpuId, *, now_s: float) -> bool:
        """Whether it is to be left alone: until its helper has come out of the call, and perhaps for some time.

        That the call returned is the sign that something has changed; without it another helper would only get stuck.
        """
        aside = self._gpus.get(gpu)
        return aside is not None and (now_s < aside.not_before_s or not aside.child.ended())

    def wait_longer(self, gpu: GpuId, *, now_s: float) -> None:
        """It was to be asked again, and could not be."""
        if gpu in self._gpus:
            self.put(gpu, self._gpus[gpu].child, now_s=now_s)

    def forget_returned(self) -> None:
        """Ask again at once those whose helper has come out of the call: whoever closed the devices reset something."""
        self._past = {}
        self._gpus = {gpu: aside for gpu, aside in self._gpus.items() if not aside.child.ended()}
