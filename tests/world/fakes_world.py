"""What the world tests share: a small fleet under a shipped policy."""

from typing import Any

from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.world.settings import Settings
from fleetd.world.world import World

POLICIES = {name: load_policy(policy_path(name)) for name in ("observe", "default", "strict")}


def fleet(*, policy: str = "default", crew: bool = False, **settings: Any) -> World:
    """Four hosts of four GPUs, unless said otherwise."""
    wanted = {"hosts": 4, "gpus": 4, "sample_seconds": 30.0, **settings}
    return World(Settings(policy=POLICIES[policy], **wanted), crew=crew)
