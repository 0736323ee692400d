"""The wiring of the host's lease of the fleet's power budgets."""

from fleetd.agent.governor_config import GovernorConfig
from fleetd.agent.power_epoch import next_epoch
from fleetd.agent.power_lease import PowerLease
from fleetd.compose.owned import Owned
from fleetd.config.envelope import envelope_path, read_envelope
from fleetd.devices.helper import HelperDevices
from fleetd.ports import Clock

EPOCH = "power-lease.epoch"
"""The number of the agent's last start, in its state directory."""


def build_lease(config: GovernorConfig, own: Owned, *, clock: Clock) -> PowerLease | None:
    """Wire a lease; None: this host takes part in no budget, or nothing governs its GPUs. Raises ConfigError."""
    if config.host_base_watts is None or config.envelope is None or not isinstance(own.devices, HelperDevices):
        return None
    return PowerLease(
        host=own.host,
        epoch=next_epoch(own.folder / EPOCH, wall_s=clock.wall_s()),
        base_watts=config.host_base_watts,
        safe_cap_watts=read_envelope(envelope_path(config.envelope)).envelope.safe_cap_watts,
        allowed=config.mode,
        clock=clock,
    )
