"""GPUs that are not written to for a while, because a write failed or was not taken."""

from fleetd.model.ids import GpuId

REST_FIRST_S, REST_MAX_S = 1.0, 32.0
"""A GPU whose limits could not be written, or were not taken, is tried again after the first wait, which doubles. Soon
at first: somebody else may have written in the same moment, and what stands then may be above the safe cap."""


class Rests:
    """Who rests, and why. Bounded by the GPUs of the host."""

    def __init__(self) -> None:
        self._until: dict[GpuId, tuple[float, str]] = {}
        self._wait_s: dict[GpuId, float] = {}

    def why(self, name: GpuId, now_s: float) -> str:
        """Why a GPU is not written to; "" when it is."""
        until_s, why = self._until.get(name, (now_s, ""))
        return why if now_s < until_s else ""

    def fail(self, name: GpuId, why: str, now_s: float) -> float:
        """A write failed; returns for how many seconds the GPU rests."""
        wait_s = self._wait_s.get(name, REST_FIRST_S)
        self._wait_s[name] = min(2.0 * wait_s, REST_MAX_S)
        self._until[name] = (now_s + wait_s, why)
        return wait_s

    def took(self, name: GpuId) -> None:
        """A write was taken: the next failure rests for the first wait again."""
        self._wait_s.pop(name, None)
