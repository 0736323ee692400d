"""The governor's wiring: envelope and set-point from files, limits from the devices, writes to the power guard."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import structlog

from fleetd.agent.governor import Governor
from fleetd.agent.governor_config import GovernorConfig
from fleetd.agent.governor_ports import Budget, Outside
from fleetd.agent.power_outside import PowerOutside
from fleetd.config.envelope import envelope_path, read_envelope
from fleetd.config.setpoint import load_setpoint
from fleetd.config.strict import ConfigError
from fleetd.core.power.govern import GovernConfig, boost_limits
from fleetd.core.power.keeping import Kept, keeping
from fleetd.core.power.modes import Mode, ModeConfig
from fleetd.core.power.setpoint import SetPoint, envelope_sha256, lapsed
from fleetd.devices.guard_line import GuardLine
from fleetd.devices.helper import HelperDevices
from fleetd.model.envelope import Envelope
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.power import PowerReading
from fleetd.ports import Clock

_log = structlog.get_logger(__name__)

BEAT_INTERVALS = 5.0
"""A governor's loop that has not turned for so many intervals loses its lease: about two seconds by default."""
PLAUSIBLE_RATIO = 2.0
"""No reading above so many TBP is believed: the highest excursion that any envelope lists."""


class Planner:
    """What holds for a GPU now. The set-point's file is read again when it has changed."""

    def __init__(
        self,
        config: GovernorConfig,
        envelope: Envelope,
        *,
        sustained_watts: float,
        safe: Mapping[str, float],
        clock: Clock,
    ) -> None:
        """`safe`: limits of the safe cap, by knob; empty where there are none, and nothing may be written then."""
        self._config, self._envelope, self._clock = config, envelope, clock
        self._sustained_watts = sustained_watts
        self._point: tuple[object, SetPoint | str] | None = None
        self._modes = ModeConfig(
            allowed=Mode(config.mode),
            stale_s=config.stale_s,
            power_max_watts=PLAUSIBLE_RATIO * envelope.tbp_watts,
            temperature_max_celsius=config.temperature_max_celsius,
            settle_s=config.settle_seconds,
        )
        self._safe, self._sha256 = dict(safe), envelope_sha256(envelope)
        self._known: tuple[object, dict[str | None, GovernConfig]] = (None, {})

    def __call__(self, firmware: str | None) -> GovernConfig:
        """See `governor_ports.Plan`. Found anew each second, for a file that changed or a time that is over."""
        second = int(self._clock.wall_s())
        if self._known[0] != second:
            self._known = second, {}
        if firmware not in self._known[1]:
            self._known[1][firmware] = self._plan(firmware)
        return self._known[1][firmware]

    def _plan(self, firmware: str | None) -> GovernConfig:
        boost, why, clock = None, "none is configured", None
        if self._config.set_point is not None:
            point = self._read(self._config.set_point)
            boost, why = self._boost(point, firmware)
            clock = None if boost is None or isinstance(point, str) else point.candidate.clock_cap_hertz
        return GovernConfig(modes=self._modes, safe=self._safe, boost=boost, boost_why=why, boost_clock_hertz=clock)

    def _read(self, path: Path) -> SetPoint | str:
        """The set-point on disk, or why there is none."""
        try:
            status = path.stat()
            mark: object = (status.st_ino, status.st_mtime_ns, status.st_size)
        except OSError as error:
            mark = error.errno
        if self._point is None or self._point[0] != mark:
            try:
                self._point = mark, load_setpoint(path)
            except ConfigError as error:
                self._point = mark, str(error)
        return self._point[1]

    def _boost(self, point: SetPoint | str, firmware: str | None) -> tuple[dict[str, float] | None, str]:
        if isinstance(point, str):
            return None, point
        now_s = self._clock.wall_s()
        if why := lapsed(point, envelope=self._envelope, firmware=firmware, now_s=now_s, sha256=self._sha256):
            return None, why
        try:
            return boost_limits(self._envelope, point.candidate, self._sustained_watts), ""
        except ValueError as error:
            return None, str(error)


def usable_envelope(config: GovernorConfig, name: str) -> tuple[Envelope, Kept]:
    """Read the envelope of a configuration, and whether it can be kept.

    Raises:
        ConfigError: it cannot be read; or it cannot be kept, and `mode` wants it to be.
    """
    path = envelope_path(name)
    envelope = read_envelope(path).envelope
    kept = keeping(envelope)
    if kept.why and config.mode != Mode.OBSERVE.value:
        raise ConfigError(path, None, f"refused: {kept.why}; `power: {{mode: observe}}` looks at it only")
    return envelope, kept


def build_governor(
    config: GovernorConfig,
    devices: object,
    *,
    clock: Clock,
    inventory: Callable[[], Sequence[Gpu]],
    released: Callable[[], bool],
    outside: Outside | None = None,
    budget: Budget | None = None,
) -> Governor | None:
    """Wire a governor; None: no envelope is configured, or the devices are simulated and tell no limits.

    `outside`: what else speaks against boost; None: nothing is heard. `budget`: the host's part of power budgets.

    Raises:
        ConfigError: the envelope cannot be read, or no limit can keep it and `mode` wants more than `observe`.
    """
    if config.envelope is None:
        return None
    if not isinstance(devices, HelperDevices):
        _log.warning("power_not_governed", why="simulated GPUs have no limits; `power: envelope` is without effect")
        return None
    envelope, kept = usable_envelope(config, config.envelope)
    if kept.why:
        _log.warning("power_envelope_only_observed", envelope=envelope.name, why=kept.why)

    async def read(*, energy: bool = False, samples: Collection[GpuId] = ()) -> Sequence[PowerReading]:
        return await devices.power(energy=energy, samples=samples)

    return Governor(
        config=config,
        envelope=envelope,
        plan=Planner(config, envelope, sustained_watts=kept.sustained_watts, safe=kept.safe, clock=clock),
        read=read,
        line=GuardLine(config.guard, clock=clock, beat_max_s=BEAT_INTERVALS * config.interval_s),
        clock=clock,
        inventory=inventory,
        released=released,
        outside=outside or PowerOutside(),
        budget=budget,
        unenforceable=kept.why,
    )
