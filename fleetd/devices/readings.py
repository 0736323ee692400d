"""From what a vendor's reader sends to a `GpuSample`: nothing that cannot be true becomes a number.

A reading beyond what its unit allows, or a counter that went backwards, is absent and counted in
`implausible_readings_total`, where detection finds it. A counter is believed again from its next reading on, since a
reset or a new driver starts it anew.
"""

from collections.abc import Mapping
from typing import Any

from fleetd.model.ids import GpuId
from fleetd.model.telemetry import FAMILIES, LABELS_MAX, METRICS, GpuSample

_LIMITS = {
    "_ratio": (0.0, 1.0),
    "_celsius": (-273.15, 200.0),
    "_watts": (0.0, 10_000.0),
    "_hertz": (0.0, 2e10),
    "_bytes": (0.0, 2.0**48),
    "_per_second": (0.0, 2.0**48),
}
"""What no part of today or of the next years exceeds, by unit; everything else: from 0 to what a 63-bit counter has."""
_ANYTHING = (0.0, 2.0**63 - 1.0)
_LABEL_CHARS_MAX = 32
_KINDS = {metric.name: metric.kind for metric in METRICS + FAMILIES}


def _limits(metric: str) -> tuple[float, float]:
    return next((limits for suffix, limits in _LIMITS.items() if metric.endswith(suffix)), _ANYTHING)


_FAMILIES = frozenset(family.name for family in FAMILIES)
_LIMITS_OF = {name: _limits(name) for name in _KINDS}

_HELPERS_OWN = frozenset({"throttle_seconds_total"})
"""Counters that a helper may keep itself (AMD's firmware counts cycles, not seconds): they begin anew with another."""


class Readings:
    """The readings of one GPU. Remembers its counters, so one object for the life of a GPU."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], float] = {}  # bounded by the catalogue times LABELS_MAX
        self._implausible: dict[str, float] = {}
        self._slow: dict[str, Any] = {}
        self._source = 0

    def sample(
        self, gpu: GpuId, at_s: float, reply: Mapping[str, Any], *, slow: bool = False, source: int = 0
    ) -> GpuSample:
        """Make a sample of a reply's metrics (numbers) and families ([label, number] each).

        What the last `slow` reply told and this one does not speak of is kept: it was not read this time. A name that
        is there without a number was read in vain, and is absent. `source` is the helper that read it: what helpers
        count themselves may begin anew with another one, and is no lie.
        """
        if source != self._source:
            self._source = source
            self._counters = {key: value for key, value in self._counters.items() if key[0] not in _HELPERS_OWN}
        found: dict[str, Any] = {}
        for name, value in reply.items():
            if name in _FAMILIES:
                if isinstance(value, list) and value:
                    found[name] = self._labelled(name, value[:LABELS_MAX])
            elif name in _LIMITS_OF and (number := self._plausible(name, "", value)) is not None:
                found[name] = number
        if slow:
            self._slow = found
        else:
            found = {name: value for name, value in self._slow.items() if name not in reply} | found
        if self._implausible:
            found = dict(found)
            found["implausible_readings_total"] = tuple(sorted(self._implausible.items())[:LABELS_MAX])
        return GpuSample(gpu=gpu, at_s=at_s, **found)

    def _labelled(self, name: str, entries: list[Any]) -> tuple[tuple[str, float], ...]:
        readings: dict[str, float] = {}
        for entry in entries:
            match entry:
                case [str(label), number] if 0 < len(label) <= _LABEL_CHARS_MAX:
                    value = self._plausible(name, label, number)
                    if value is not None:
                        readings[label] = value
                case _:
                    continue
        return tuple(readings.items())

    def _plausible(self, name: str, label: str, value: Any) -> float | None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        low, high = _LIMITS_OF[name]
        good = low <= value <= high  # false of NaN and of infinities, and no error for an integer of any length
        if good and _KINDS[name] == "counter":
            good = value >= self._counters.get((name, label), 0.0)
            self._counters[name, label] = float(value)
        if good:
            return float(value)
        self._implausible[name] = self._implausible.get(name, 0.0) + 1.0
        return None
