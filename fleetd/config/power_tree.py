"""`kind: PowerTree`: which areas have a power budget, which hosts stand in them, and how far each may go."""

from dataclasses import dataclass
from pathlib import Path

from fleetd.actuators.slurm_text import NODES_MAX, expand
from fleetd.config.files import HOST_NAME
from fleetd.config.strict import ConfigError, Document, read
from fleetd.controller.power_config import GRACE_MAX_S, GRACE_MIN_S, TTL_MAX_S, TTL_MIN_S, PowerTree
from fleetd.core.power.books import HostPower
from fleetd.core.power.tree import Area, BudgetTree, TreeError
from fleetd.ports import ActuatorError

HOST_WATTS = (50.0, 250_000.0)
"""No host of GPUs draws less or more: a number outside is in another unit, or of a rack."""
AREA_WATTS_MAX = 1e10
"""Ten gigawatts: a number above is in another unit."""
NAME_CHARS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaFile:
    """A rack, a domain, a hall: what has a budget."""

    name: str
    budget_watts: float
    parent: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no area. Raises ValueError."""
        if not (self.name.isprintable() and 0 < len(self.name) <= NAME_CHARS_MAX):
            raise ValueError(f"name: {self.name!r:.80} is no name: 1 to {NAME_CHARS_MAX} printable characters")
        if not 0 < self.budget_watts <= AREA_WATTS_MAX:
            raise ValueError(f"budget_watts: {self.budget_watts:g} W is no budget; write it in watts, above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsFile:
    """Hosts that are alike."""

    hosts: str
    """A name, or a list such as `h[001-128],login1`."""
    area: str
    safe_watts: float
    """What one host may draw without a lease: its GPUs at the envelope's safe cap, and everything else at its most."""
    max_watts: float
    controlled: bool = True
    """Whether its agent holds its power (`power: mode: safe` or `boost`); if not, its maximum is reserved for good."""

    def __post_init__(self) -> None:
        """Refuse what is no host's power. Raises ValueError."""
        low, high = HOST_WATTS
        for name in ("safe_watts", "max_watts"):
            if not low <= getattr(self, name) <= high:
                raise ValueError(
                    f"{name}: {getattr(self, name):g} W is no power of one host, which is from {low:g} to {high:g} W; "
                    "is it in another unit, or of a rack?"
                )
        if self.max_watts < self.safe_watts:
            raise ValueError(f"max_watts: {self.max_watts:g} W is below the safe_watts of {self.safe_watts:g} W")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFile:
    """The file."""

    areas: tuple[AreaFile, ...]
    hosts: tuple[HostsFile, ...]
    ttl_seconds: float = 60.0
    """Life of a lease. A host asks every third of it."""
    grace_seconds: float = 6.0
    """Within which a host whose lease lapsed has its safe cap in force."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        for name, low, high in (
            ("ttl_seconds", TTL_MIN_S, TTL_MAX_S),
            ("grace_seconds", GRACE_MIN_S, GRACE_MAX_S),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name}: {getattr(self, name):g} is not from {low:g} to {high:g}")


def load_power_tree(path: Path) -> PowerTree:
    """Read a tree and make sure that it can be kept. Raises ConfigError."""
    document = read(path, TreeFile, kind="PowerTree")
    file = document.value
    lines: dict[str, int] = {}
    areas = []
    for n, area in enumerate(file.areas):
        line = document.line_of(f"areas[{n}]")
        if area.name in lines:
            raise ConfigError(
                path, line, f"areas[{n}]: area {area.name} stands a second time; first in line {lines[area.name]}"
            )
        lines[area.name] = line
        areas.append(Area(name=area.name, budget_watts=area.budget_watts, parent=area.parent))
    hosts, host_lines = _hosts(path, document)
    tree = PowerTree(areas=tuple(areas), hosts=hosts, ttl_s=file.ttl_seconds, grace_s=file.grace_seconds)
    try:
        BudgetTree(tree.areas, tree.hosts, now_s=0.0, ttl_s=tree.ttl_s, grace_s=tree.grace_s)
    except TreeError as error:
        raise ConfigError(path, {**host_lines, **lines}.get(error.about), str(error)) from error
    return tree


def _hosts(path: Path, document: Document[TreeFile]) -> tuple[tuple[HostPower, ...], dict[str, int]]:
    """Every host by its name, and the line that it comes from. Raises ConfigError."""
    found: list[HostPower] = []
    lines: dict[str, int] = {}
    for n, alike in enumerate(document.value.hosts):
        line = document.line_of(f"hosts[{n}].hosts")
        try:
            names = expand(alike.hosts)
        except ActuatorError:
            names = ()
        if len(lines) + len(names) > NODES_MAX:
            raise ConfigError(path, line, f"hosts[{n}].hosts: more than {NODES_MAX} hosts in one tree")
        if not names or not all(HOST_NAME.fullmatch(name) for name in names):
            message = f"hosts[{n}].hosts: {alike.hosts!r:.80} is no list of hosts; write it as h01 or h[001-128],h200"
            raise ConfigError(path, line, message)
        for name in names:
            if name in lines:
                message = f"hosts[{n}].hosts: host {name} stands a second time; first in line {lines[name]}"
                raise ConfigError(path, line, message)
            lines[name] = line
            found.append(
                HostPower(
                    name=name,
                    area=alike.area,
                    safe_watts=alike.safe_watts,
                    max_watts=alike.max_watts,
                    controlled=alike.controlled,
                )
            )
    return tuple(found), lines
