"""From what a vendor's reader says that there is to the inventory: every GPU has a name, and no two have the same."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

import structlog

from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId

_log = structlog.get_logger(__name__)

_PARTITIONS_MAX = 64
_FIELDS = frozenset(field.name for field in fields(Gpu))
_NEEDED = frozenset(field.name for field in fields(Gpu) if field.default is MISSING)


def named(entries: Iterable[Mapping[str, Any]]) -> tuple[Gpu, ...]:
    """The GPUs of a reader's `inventory`. Of those with one name the first, whose readings are the ones by that name.

    Raises:
        TypeError: an entry is none, or has no name.
        KeyError: an entry lacks what every GPU has.
    """
    found: dict[GpuId, Gpu] = {}
    for entry in entries:
        gpu = _gpu(entry)
        if found.setdefault(gpu.gpu, gpu) is not gpu:
            _log.error("gpu_named_twice", gpu=gpu.gpu, index=gpu.index, why="it cannot be told from the other one")
    return tuple(found.values())


def _gpu(entry: Mapping[str, Any]) -> Gpu:
    needed: dict[str, Any] = {name: entry[name] for name in _NEEDED}
    optional: dict[str, Any] = {name: entry[name] for name in _FIELDS - _NEEDED if name in entry}
    if not isinstance(needed["gpu"], str) or not needed["gpu"]:
        raise TypeError("a GPU without a name")
    parts = optional.pop("partitions", ())
    return Gpu(**needed, **optional, partitions=tuple(str(part) for part in parts)[:_PARTITIONS_MAX])
