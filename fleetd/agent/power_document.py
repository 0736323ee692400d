"""The part of the status document that speaks of power."""

from dataclasses import asdict
from typing import Any

from fleetd.model.power import PowerStatus


def power_document(status: PowerStatus | None) -> dict[str, Any] | None:
    """JSON-ready, in base units; None: the agent does not look at power."""
    if status is None:
        return None
    document = asdict(status)
    document["gpus"] = [asdict(gpu) for gpu in status.gpus]
    return document
