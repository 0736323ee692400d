"""What a world is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.policy import Policy
from fleetd.model.host import Place
from fleetd.model.ids import HostName
from fleetd.sim.burner import SECONDS
from fleetd.sim.wire import Weather


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a world's course depends on, besides its timetable. Times are virtual."""

    policy: Policy
    hosts: int = 4
    gpus: int = 8
    """Of each host."""
    seed: int = 1
    sample_seconds: float = 10.0
    """How often an agent reads its GPUs and sends what it read."""
    detect: bool = False
    """Whether the agents judge what they read, as real ones do. It makes a quiet world about four times as dear."""
    weather: Weather = field(default_factory=Weather)
    start_seconds: float = 5.0
    """The agents start, evenly spread, within this time."""
    restart_seconds: float = 3.0
    """Until the service manager starts a process again that has died."""
    boot_seconds: float = 180.0
    disk_seconds: float = 0.002
    """Of one call to the controller's ledger."""
    actuator_refuse_ratio: float = 0.0
    burnin_seconds: Mapping[str, float] = field(default_factory=lambda: SECONDS)

    rack_hosts: int | None = None
    """Hosts of each rack; None: the agents do not know where they stand."""

    catalogue: Catalogue | None = None
    """Judges the lines of kernel logs (`Moment.log`); None: no agent reads one, and only ready-made faults are told."""

    def place(self, number: int) -> Place:
        """Return where the host with this number (from 0) stands; two racks share a power domain."""
        if self.rack_hosts is None:
            return Place()
        rack = number // self.rack_hosts
        return Place(pool="training", rack=f"r{rack + 1}", power_domain=f"p{rack // 2 + 1}")

    def names(self) -> tuple[HostName, ...]:
        """Return the names of the hosts: `h01`, `h02` and so on."""
        width = max(2, len(str(self.hosts)))
        return tuple(HostName(f"h{n:0{width}d}") for n in range(1, self.hosts + 1))
