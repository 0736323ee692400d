"""Configuration of the devices; a module of its own, so that reading a configuration loads no adapter."""

import re
from dataclasses import dataclass

_GPUS_MAX = 64
_BACKENDS = ("nvidia", "amd", "sim")
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesConfig:
    """Which GPUs the agent looks after, and how patient it is with their driver."""

    backend: str = "nvidia"
    """`nvidia`, `amd`, `sim`, or `module:factory` of a reader of one's own (`fleetd.devices.reader.Reader`)."""
    gpus: int = 8
    """How many GPUs are simulated; of no meaning to another backend."""
    seed: int = 0
    """Seed of the simulated readings; of no meaning to another backend."""
    fault: str | None = None
    """A fault planted in every burn-in of this host, as its `--inject` takes it: `gpu=5,fault=F03,rate=0.3`.

    For demonstrations and rehearsals: allowed with `backend: sim` only, so that no real host is ever blamed by it.
    """
    call_deadline_seconds: float = 2.0
    """A call that takes longer is given up, and its helper process abandoned. One GPU is read in under 5 ms."""
    open_deadline_seconds: float = 30.0
    """The same for opening the library: without persistence mode the driver initialises every GPU, in seconds each."""
    reopen_deadline_seconds: float = 5.0
    """The same while an abandoned helper still keeps the driver open: then opening is quick, or the driver hangs."""
    slow_reading_interval_seconds: float = 10.0
    """How often the expensive readings are made (energy: 4 ms of CPU a call); spread evenly over the GPUs."""
    discovery_interval_seconds: float = 60.0
    """How often the driver is asked which GPUs there are, and the kernel whether its list of them has changed."""
    fresh_look_interval_seconds: float = 3600.0
    """A library that runs never learns of a GPU that came later. So a fresh helper names the GPUs when the kernel's
    list has changed, while a GPU has trouble (after the interval above, which doubles), and in any case this often."""
    restart_first_seconds: float = 1.0
    restart_max_seconds: float = 300.0
    """A helper that failed is followed by another after the first wait, which doubles up to the maximum."""
    abandoned_max: int = 3
    """No further helper is started while this many abandoned ones are stuck inside the driver as a whole. One that is
    stuck in a call for a GPU does not count: each GPU has at most one, and the others must go on."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.backend not in _BACKENDS and not _FACTORY.fullmatch(self.backend):
            raise ValueError(f"backend: {self.backend!r:.80} is none of {', '.join(_BACKENDS)} and no module:factory")
        if not 1 <= self.gpus <= _GPUS_MAX:
            raise ValueError(f"gpus: {self.gpus} is not between 1 and {_GPUS_MAX}")
        if self.fault is not None and self.backend != "sim":
            raise ValueError("fault: needs backend: sim, since it is planted in simulated GPUs only; remove it")
        positive = (
            "call_deadline_seconds",
            "open_deadline_seconds",
            "reopen_deadline_seconds",
            "slow_reading_interval_seconds",
            "discovery_interval_seconds",
            "fresh_look_interval_seconds",
            "restart_first_seconds",
            "restart_max_seconds",
            "abandoned_max",
        )
        for name in positive:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")
