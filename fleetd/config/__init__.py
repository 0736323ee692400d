"""Configuration: YAML files become the frozen dataclasses that their owners declare, or one line says why not.

What belongs here: the strict reader (`strict.py`) and the top-level files, which gather the owners' config structs.
Always true: nothing is read from a file with an unknown key, a key given twice or a value of the wrong type.
"""

from pathlib import Path

from fleetd.config.strict import ConfigError, Document, load, read
from fleetd.core.policy import Policy
from fleetd.core.timeline import Timeline

__all__ = ["ConfigError", "Document", "load", "load_policy", "read", "read_policy", "read_policy_test"]


def load_policy(path: Path) -> Policy:
    """Read a policy. Raises ConfigError."""
    return load(path, Policy, kind="Policy")


def read_policy(path: Path) -> Document[Policy]:
    """Read a policy together with the lines its parts stand on. Raises ConfigError."""
    return read(path, Policy, kind="Policy")


def read_policy_test(path: Path) -> Document[Timeline]:
    """Read a test of a policy together with the lines its parts stand on. Raises ConfigError."""
    return read(path, Timeline, kind="PolicyTest")
