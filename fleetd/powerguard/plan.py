"""What the guard has to know to put every GPU to its safe cap, kept on disk before the first limit is written."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

SCHEMA = "fleetd.powerguard.state/1"
GPUS_MAX = 64
KNOBS = ("limit", "ppt0", "ppt1")
"""`limit`: NVIDIA's power limit; `ppt0`, `ppt1`: AMD's lower and higher limiter. In this order they are lowered."""
_WORD_MAX = 128
_WATTS_MAX, _HERTZ_MAX = 1e6, 1e12
"""Compared with before anything is made a float: JSON's integers may be longer than any."""
_VENDORS = ("nvidia", "amd")


class BadPlan(ValueError):  # noqa: N818 - it says what it is
    """What was declared is no plan; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One knob of one GPU. Watts."""

    prior_watts: float
    """In force before fleetd touched it, as the agent read it."""
    safe_watts: float
    """Goes here when there is no lease."""
    ceiling_watts: float
    """Never above this, whoever asks."""
    target_watts: float
    """Written last, or what is known to be in force if that is less."""

    @property
    def fall_watts(self) -> float:
        """Where a fall goes: down to the safe cap, and never up to it."""
        return min(self.safe_watts, self.target_watts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU and its knobs."""

    gpu: str
    """UUID."""
    vendor: str
    pci: str
    """PCI address, by which it is found without touching the others; "" when unknown."""
    limits: Mapping[str, Limit]
    clock_hertz: float | None = None
    """Highest clock that we locked; None: none. A driver does not tell a lock, so nothing is known of others'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All GPUs that the guard answers for."""

    boot_id: str
    reason: str
    written_at_s: float
    """Wall time."""
    gpus: Mapping[str, Gpu] = field(default_factory=dict)

    def with_clocks(self, clocks: Mapping[str, float | None]) -> "Plan":
        """The same with other locked clocks, by GPU."""
        return replace(
            self, gpus={n: replace(g, clock_hertz=clocks.get(n, g.clock_hertz)) for n, g in self.gpus.items()}
        )

    def with_targets(self, targets: Mapping[str, Mapping[str, float]]) -> "Plan":
        """The same with other targets."""
        gpus = dict(self.gpus)
        for name, knobs in targets.items():
            limits = {k: replace(v, target_watts=knobs.get(k, v.target_watts)) for k, v in gpus[name].limits.items()}
            gpus[name] = replace(gpus[name], limits=limits)
        return replace(self, gpus=gpus)

    def falls(self) -> dict[str, dict[str, float]]:
        """GPU → knob → where it falls to, lower limiter first."""
        return {
            name: {knob: gpu.limits[knob].fall_watts for knob in KNOBS if knob in gpu.limits}
            for name, gpu in self.gpus.items()
        }

    def locked(self) -> dict[str, float]:
        """GPU → the clock that we locked."""
        return {name: gpu.clock_hertz for name, gpu in self.gpus.items() if gpu.clock_hertz is not None}

    def priors(self) -> dict[str, dict[str, float]]:
        """GPU → knob → what was in force before, higher limiter first: most of them are raised."""
        return {
            name: {knob: gpu.limits[knob].prior_watts for knob in reversed(KNOBS) if knob in gpu.limits}
            for name, gpu in self.gpus.items()
        }


def declared(entries: object, *, boot: str, at_s: float, before: Plan | None) -> Plan:
    """The plan that an agent declares, over what is already known.

    What was in force before fleetd is taken from the first declaration of the boot: a later agent finds our own limits.
    GPUs that are not named this time stay for the rest of the boot: one whose driver is silent still has its limit.

    Args:
        entries: `[{gpu, vendor, pci, limits: {knob: {prior_watts, safe_watts, ceiling_watts}}}]`, from JSON.
        boot: the present boot id.
        at_s: wall time.
        before: what is on disk.

    Raises:
        BadPlan: it is no plan.
    """
    if not isinstance(entries, list) or not entries:
        raise BadPlan("gpus: a list with at least one GPU is needed")
    known = dict(before.gpus) if before is not None and before.boot_id == boot else {}
    fresh: dict[str, Gpu] = {}
    for entry in entries:
        gpu = replace(_gpu(entry), clock_hertz=None)  # what is locked, the guard knows alone
        if gpu.gpu in fresh:
            raise BadPlan(f"{gpu.gpu} is named twice")
        if (old := known.get(gpu.gpu)) is not None:
            # The target, too, is what the guard knows best, but for what others lowered while nobody could tell it.
            limits = {
                knob: replace(new, prior_watts=was.prior_watts, target_watts=min(was.target_watts, new.prior_watts))
                if (was := old.limits.get(knob))
                else new
                for knob, new in gpu.limits.items()
            }
            gpu = replace(gpu, limits=limits, clock_hertz=old.clock_hertz)
        fresh[gpu.gpu] = gpu
    if len(known | fresh) > GPUS_MAX:
        raise BadPlan(f"more than {GPUS_MAX} GPUs")
    return Plan(boot_id=boot, reason="armed", written_at_s=at_s, gpus=known | fresh)


def _gpu(entry: object) -> Gpu:
    match entry:
        case {"gpu": str() as gpu, "vendor": str() as vendor, "pci": str() as pci, "limits": dict() as limits}:
            pass
        case _:
            raise BadPlan("a GPU needs gpu, vendor, pci and limits")
    if not (0 < len(gpu) <= _WORD_MAX and gpu.isprintable() and len(pci) <= _WORD_MAX and pci.isascii()):
        raise BadPlan(f"{gpu!r:.80} at {pci!r:.40} is no GPU")
    if vendor not in _VENDORS:
        raise BadPlan(f"{gpu}: vendor {vendor!r:.40} is none of {', '.join(_VENDORS)}")
    if not limits or not limits.keys() <= set(KNOBS):
        raise BadPlan(f"{gpu}: limits may be {', '.join(KNOBS)}")
    hertz = entry.get("clock_hertz") if isinstance(entry, dict) else None
    if hertz is not None and not (isinstance(hertz, int | float) and 0 < hertz < _HERTZ_MAX):
        raise BadPlan(f"{gpu}: clock_hertz must be a positive number of hertz")
    knobs = {knob: _limit(gpu, knob, limits[knob]) for knob in limits}
    return Gpu(gpu=gpu, vendor=vendor, pci=pci, limits=knobs, clock_hertz=hertz)


def _limit(gpu: str, knob: str, body: object) -> Limit:
    if not isinstance(body, dict):
        raise BadPlan(f"{gpu}: {knob} is no object")
    numbers = {}
    for name in ("prior_watts", "safe_watts", "ceiling_watts"):
        value = body.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _WATTS_MAX:
            raise BadPlan(f"{gpu}: {knob}: {name} must be a positive number of watts")
        numbers[name] = float(value)
    if numbers["safe_watts"] > numbers["ceiling_watts"]:
        raise BadPlan(f"{gpu}: {knob}: the safe cap is above the ceiling")
    target = body.get("target_watts", numbers["prior_watts"])
    if not isinstance(target, int | float) or not 0 < target < _WATTS_MAX:
        raise BadPlan(f"{gpu}: {knob}: target_watts must be a positive number of watts")
    return Limit(**numbers, target_watts=float(target))


def store(path: Path, plan: Plan) -> None:
    """Replace the file at once and durably, its directory entry too. Raises OSError."""
    body: dict[str, Any] = {"schema": SCHEMA, "boot_id": plan.boot_id, "reason": plan.reason}
    body |= {"written_at_s": plan.written_at_s, "gpus": [asdict(gpu) for gpu in plan.gpus.values()]}
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(json.dumps(body, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(path: Path) -> Plan | None:
    """Read the file; None: there is none. Raises OSError, or BadPlan when it is damaged."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise BadPlan(f"{path}: it is no JSON: {error}") from error
    match body:
        case {"schema": str() as schema, "boot_id": str() as boot, "reason": str() as reason, "gpus": list() as gpus}:
            if schema != SCHEMA:
                raise BadPlan(f"{path}: schema {schema!r:.60} is not {SCHEMA}")
        case _:
            raise BadPlan(f"{path}: it is no state of the guard")
    at_s = body.get("written_at_s")
    found = {gpu.gpu: gpu for gpu in map(_gpu, gpus)}
    return Plan(boot_id=boot, reason=reason, written_at_s=at_s if isinstance(at_s, float) else 0.0, gpus=found)
