"""Thresholds of the detection, each with where it comes from. Rates and shares of time, never "any but zero"."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

LINKS: Mapping[str, int] = MappingProxyType(
    {
        "NVIDIA A100-SXM4-40GB": 12,
        "NVIDIA A100-SXM4-80GB": 12,
        "NVIDIA H100 80GB HBM3": 18,
        "NVIDIA H200": 18,
        "NVIDIA B200": 18,
        "AMD Instinct MI300X": 7,
        "AMD Instinct MI325X": 7,
        "AMD Instinct MI350X": 7,
        "AMD Instinct MI355X": 7,
    }
)
"""Links between GPUs that are up on a board of eight, by the exact product name of the vendor library (vendors' data
sheets). A name that is not here (PCIe cards, which may have no bridge; superchips) expects nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectConfig:
    """When readings are a fault. Monotonic seconds; shares are 0..1."""

    ecc_uncorrected_count: float = 1.0
    """Uncorrected errors at once: the vendors' tools alarm at the first (a plausible one)."""
    ecc_corrected_per_hour: float = 100.0
    """Corrected errors within an hour. A healthy part has none for days; HBM that repairs itself has a handful."""
    ecc_storm_per_second: float = 100.0
    """Corrected errors a second, over ten seconds: from there on, reading them slows down the host."""
    pcie_replays_per_minute: float = 8.0
    """The rate at which DCGM's health check warns."""
    link_errors_per_minute: float = 600.0
    """Replays, CRC errors and recoveries of all links of a GPU together. DCGM warns at 100 a second on one link."""
    window_seconds: float = 60.0
    """Over which shares of time are taken, and for which a state must last before it is a fault."""
    clear_seconds: float = 300.0
    """A fault is over after good readings for so long without a bad one."""
    power_brake_share: float = 0.05
    """Of the window: three seconds of it. A brake is never normal, but one slip of the supply is no alarm."""
    thermal_share: float = 0.1
    """Of the window, with the clocks held back: six seconds of it."""
    busy_ratio: float = 0.5
    """Utilisation from which a GPU counts as busy: what only happens under load is judged only then."""
    clock_low_ratio: float = 0.5
    """Of the highest clock of the part: a throttled GPU tells its reason, one this low without a reason is stuck."""
    stale_seconds: float = 300.0
    """A busy GPU's power, temperature and clock that do not change for so long are not measured any more."""
    implausible_jump: float = 65536.0
    """An equal jump of corrected and uncorrected errors of at least this size comes from no memory."""
    expected_links: Mapping[str, int] = field(default_factory=dict)
    """Links between GPUs by product name, for parts and boards that fleetd does not know, or knows otherwise."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, Mapping):
                if any(count < 0 for count in value.values()):
                    raise ValueError(f"{entry.name}: a count of links is below 0")
            elif not value > 0:
                raise ValueError(f"{entry.name}: {value} is not above 0")
            elif entry.name.endswith(("_share", "_ratio")) and value > 1:
                raise ValueError(f"{entry.name}: {value} is above 1; it is a share")

    def links_of(self, sku: str) -> int | None:
        """How many links the part should have up; None: not known, so nothing is missing."""
        return self.expected_links.get(sku, LINKS.get(sku))
