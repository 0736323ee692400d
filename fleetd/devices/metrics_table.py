"""The catalogue and the sensor map as a document; `python -m fleetd.devices.metrics_table` prints it."""

import sys
from collections.abc import Iterable, Iterator

from fleetd.devices.parts import PARTS
from fleetd.model.telemetry import FAMILIES, METRICS

_HEAD = """# Metrics of a GPU

Generated from `fleetd/model/telemetry.py` and `fleetd/devices/parts.py` by `python -m fleetd.devices.metrics_table`; a
test fails when this is not what it prints.

Each is served as `fleetd_gpu_NAME{gpu="UUID"}` in Prometheus' base units. What a part does not have, or what was not
read, has no sample, and is never 0. A reading that cannot be true (beyond what its unit allows, a counter that went
backwards) is left out and counted in `implausible_readings_total`. Energy, limits, errors, links, processes and
efficiency are read every 10 s, everything else every second.

A vendor of one's own is a class like `fleetd.devices.reader.Reader` and `devices: {backend: "module:factory"}`;
`tests/devices/example_vendor.py` is a whole one.
"""


def document() -> str:
    """The whole document."""
    rows = ((entry.name, entry.kind, entry.label or "", entry.help) for entry in METRICS + FAMILIES)
    sensors = (
        (
            part.name,
            _code(part.power_average),
            "" if part.average_window_seconds is None else f"{part.average_window_seconds:g} s",
            _code(part.power_instant),
            part.basis,
        )
        for part in PARTS
    )
    parts = [part.name for part in PARTS]
    has = (
        (entry.name, *("" if entry.name in part.absent else "yes" for part in PARTS))
        for entry in METRICS + FAMILIES
        if any(entry.name in part.absent for part in PARTS)
    )
    return "\n".join(
        [
            _HEAD,
            *_table(("name", "kind", "label", "meaning"), rows),
            "\n## Power by part\n",
            *_table(("part", "`power_watts` (average)", "window", "`power_instant_watts`", "rests on"), sensors),
            "\n## What not every part has\n",
            "Empty: the part, or the vendor's library, does not tell it. What is not in this table, all have.\n",
            *_table(("name", *parts), has),
            "",
        ]
    )


def _code(source: str | None) -> str:
    return "none" if source is None else f"`{source}`"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    sys.stdout.write(document())
