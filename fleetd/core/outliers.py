"""The GPU that no threshold catches: slower, hotter or thirstier than its siblings of the same SKU and pool.

The robust z-score of a reading is its distance from the siblings' median in units of 1.4826 median absolute deviations
(for normal readings, in standard deviations); a few bad GPUs do not move it, as they would a mean.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fleetd.core.policy import Outliers
from fleetd.model.event import OutlierFound
from fleetd.model.host import Host
from fleetd.model.ids import GpuId, HostName
from fleetd.model.telemetry import Vitals

MAD_TO_SIGMA = 1.4826
"""1 / Φ⁻¹(3/4): median absolute deviation → standard deviation of a normal distribution."""

LOAD_AT_LEAST = 0.5
"""Utilization under which a GPU is not compared: idle GPUs are unlike busy ones and sound."""

SPREAD_AT_LEAST = 0.01
"""Of the median: siblings that agree better than this make no outlier of one that differs by a little."""

Z_MOST = 1e6
"""No score tells more. A reading without measure, divided by a small spread, is no number that a ledger can keep."""

WATCHED: Mapping[str, int] = {"sm_clock_hertz": -1, "temperature_celsius": 1, "power_watts": 0}
"""Metric → the bad direction: lower, higher, or both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaks:
    """How many looks in a row each (GPU, metric) was unlike its siblings."""

    looks: Mapping[tuple[GpuId, str], int]


NO_STREAKS = Streaks(looks={})


def look(
    streaks: Streaks, fleet: Iterable[tuple[Host, Sequence[Vitals]]], limits: Outliers
) -> tuple[Streaks, tuple[OutlierFound, ...]]:
    """Compare the latest readings of all hosts that serve users.

    Args:
        streaks: what the last look returned.
        fleet: hosts with the latest reading of each of their GPUs.
        limits: the policy's.

    Returns:
        The streaks to hand in next time, and the GPUs whose streak has just become long enough, by host and GPU.
    """
    groups: dict[tuple[str, str, str], list[tuple[HostName, GpuId, int, float]]] = {}
    for host, samples in fleet:
        latest = {sample.gpu: sample for sample in samples}
        for gpu in host.inventory:
            sample = latest.get(gpu.gpu)
            if sample is None or sample.utilization_ratio is None or sample.utilization_ratio < LOAD_AT_LEAST:
                continue
            for metric in WATCHED:
                value: float | None = getattr(sample, metric)
                if value is not None:
                    key = (host.place.pool or "", gpu.sku, metric)
                    groups.setdefault(key, []).append((host.name, gpu.gpu, gpu.index, value))
    looks: dict[tuple[GpuId, str], int] = {}
    found: list[OutlierFound] = []
    for (_, _, metric), members in groups.items():
        if len(members) < limits.siblings_at_least:
            continue
        for outlier in _outliers(metric, members, limits.z_at_least):
            key_of = (outlier.gpu, metric)
            looks[key_of] = streaks.looks.get(key_of, 0) + 1
            if looks[key_of] == limits.in_a_row:
                found.append(outlier)
    return Streaks(looks=looks), tuple(sorted(found, key=lambda o: (o.host, o.gpu, o.metric)))


def _outliers(metric: str, members: list[tuple[HostName, GpuId, int, float]], z_at_least: float) -> list[OutlierFound]:
    middle = median(value for *_, value in members)
    spread = MAD_TO_SIGMA * median(abs(value - middle) for *_, value in members)
    spread = max(spread, SPREAD_AT_LEAST * abs(middle))
    if spread == 0:
        return []
    direction = WATCHED[metric]
    return [
        OutlierFound(
            host=host,
            gpu=gpu,
            index=index,
            metric=metric,
            value=value,
            median=middle,
            z=max(-Z_MOST, min((value - middle) / spread, Z_MOST)),
            siblings=len(members) - 1,
        )
        for host, gpu, index, value in members
        if abs(value - middle) / spread >= z_at_least and direction * (value - middle) >= 0
    ]
