"""Samples ↔ protobuf. Both directions follow the catalogue; a test holds that the message has each of its fields."""

import math
from collections.abc import Collection
from typing import Any

from fleetd.model.ids import GpuId
from fleetd.model.telemetry import FAMILIES, LABELS_MAX, METRICS, GpuSample, Labelled
from fleetd.pb.v1 import common_pb2
from fleetd.uplink.wire import CodecError, finite, items, name

_METRICS = frozenset(metric.name for metric in METRICS)
_FAMILIES = frozenset(family.name for family in FAMILIES)


def sample_to_pb(sample: GpuSample) -> common_pb2.GpuSample:
    """Encode a sample, leaving out what is not a finite number: not read this time. Raises CodecError."""
    pb = common_pb2.GpuSample(gpu=name(sample.gpu, "sample gpu"), at_s=finite(sample.at_s, "sample at_s"))
    for metric in METRICS:
        value: float | None = getattr(sample, metric.name)
        if value is not None and math.isfinite(value):
            setattr(pb, metric.name, value)
    for family in FAMILIES:
        readings: Labelled = getattr(sample, family.name)
        getattr(pb, family.name).extend(
            common_pb2.Labelled(label=name(label, f"sample {family.name}"), value=number)
            for label, number in readings[:LABELS_MAX]
            if math.isfinite(number)
        )
    return pb


def sample_from_pb(pb: common_pb2.GpuSample) -> GpuSample:
    """Decode a sample; raises CodecError."""
    found: dict[str, Any] = {}
    # What is there, and not what could be: a controller decodes thousands of samples a second.
    for descriptor, value in pb.ListFields():
        field = descriptor.name
        if field in _METRICS:
            found[field] = value if math.isfinite(value) else finite(value, f"sample {field}")
        elif field in _FAMILIES:
            found[field] = _labelled(value, f"sample {field}")
    return GpuSample(gpu=GpuId(name(pb.gpu, "sample gpu")), at_s=finite(pb.at_s, "sample at_s"), **found)


def _labelled(entries: Collection[common_pb2.Labelled], what: str) -> Labelled:
    readings = items(entries, lambda pb: (name(pb.label, what), finite(pb.value, what)), what, limit=LABELS_MAX)
    if len({label for label, _ in readings}) < len(readings):
        raise CodecError(f"{what} has a label twice")
    return readings
