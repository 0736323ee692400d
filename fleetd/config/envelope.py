"""Reading a power envelope: strictly, with the line of every row."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fleetd.config.envelope_file import EnvelopeFile, Row, Spec, known_seconds, seconds, watts
from fleetd.config.shipped import shipped_dir
from fleetd.config.strict import ConfigError, Document, read
from fleetd.model.envelope import (
    Band,
    Envelope,
    Interpolation,
    Knob,
    Lease,
    Loop,
    Lower,
    Margin,
    Semantics,
    Window,
)

KIND = "PowerEnvelope"
ENVELOPES = "envelopes"

PARTS = {
    "MI300X": "amd",
    "MI350X": "amd",
    "MI355X": "amd",
    "H100": "nvidia",
    "H200": "nvidia",
    "B200": "nvidia",
}
"""The parts that an envelope can be for. A name that is not here is refused: a guess would be another part's limits."""

_KNOBS: tuple[Literal["ppt0", "ppt1", "limit"], ...] = ("ppt0", "ppt1", "limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeDocument:
    """An envelope that was read."""

    path: Path
    envelope: Envelope
    rows: tuple[tuple[Path, int], ...]
    """File and line of each of the envelope's windows: an included row stands in another file."""
    safe_line: int

    def place(self, row: int | None) -> tuple[Path, int]:
        """Where a row stands; None: the safe cap, which is what every other finding about an envelope is about."""
        return self.rows[row] if row is not None else (self.path, self.safe_line)


def envelope_path(name_or_path: str) -> Path:
    """Return the file of a shipped envelope, or the path as it is when no shipped envelope has this name."""
    shipped = shipped_dir(ENVELOPES) / f"{name_or_path}.yaml"
    return shipped if "/" not in name_or_path and shipped.is_file() else Path(name_or_path)


def shipped_envelopes() -> list[str]:
    """Names of the envelopes that ship with fleetd."""
    return sorted(path.stem for path in shipped_dir(ENVELOPES).glob("*.yaml"))


def read_envelope(path: Path) -> EnvelopeDocument:
    """Read an envelope and the rows that it includes. Raises ConfigError."""
    document = read(path, EnvelopeFile, kind=KIND)
    spec, reader = document.value.spec, _Reader(path, document)
    reader.part()
    rows = reader.rows()
    for number, name in enumerate(spec.includes):
        rows += _included(reader, number, name)
    rows.sort(key=lambda row: row.window.over_s)
    _superseded(rows)
    _duplicates(rows)
    return EnvelopeDocument(
        path=path,
        envelope=reader.envelope(tuple(row.window for row in rows)),
        rows=tuple((row.path, row.line) for row in rows),
        safe_line=document.line_of("spec.safe"),
    )


@dataclass(slots=True, kw_only=True)
class _Placed:
    """A row, where it stands, and what it replaces."""

    path: Path
    line: int
    row: Row
    window: Window


class _Reader:
    """One file: turns its parts into the model's, and knows the line of what is wrong with them."""

    def __init__(self, path: Path, document: Document[EnvelopeFile]) -> None:
        self.path = path
        self._document = document
        self.spec: Spec = document.value.spec

    def error(self, part: str, message: str) -> ConfigError:
        return ConfigError(self.path, self._document.line_of(part), message)

    def part(self) -> None:
        match = self.spec.match
        if PARTS.get(match.sku) != match.vendor:
            known = ", ".join(part for part, vendor in PARTS.items() if vendor == match.vendor)
            raise self.error("spec.match.sku", f"`{match.sku:.40}` is no known part of {match.vendor}: {known}")

    def rows(self) -> list[_Placed]:
        placed: list[_Placed] = []
        for number, row in enumerate(self.spec.windows):
            part = f"spec.windows[{number}]"
            window = Window(
                over_s=seconds(row.over, "over"),
                max_ratio=None if row.max_ratio == "unknown" else float(row.max_ratio),
                semantics=Semantics(row.semantics),
                source=row.source,
                label=str(row.over),
            )
            if placed and window.over_s < placed[-1].window.over_s:
                raise self.error(part, f"unsorted: {window.label} after {placed[-1].window.label}; shortest first")
            placed.append(_Placed(path=self.path, line=self._document.line_of(part), row=row, window=window))
        if not placed:
            raise self.error("spec.windows", "there is no window")
        return placed

    def envelope(self, windows: tuple[Window, ...]) -> Envelope:
        spec, metadata = self.spec, self._document.value.metadata
        lowest, band, lower = spec.lowest_draw_watts, spec.lower.band, spec.lower
        return Envelope(
            name=metadata.name,
            reason=metadata.reason,
            owner=metadata.owner,
            vendor=spec.match.vendor,
            part=spec.match.sku,
            tbp_watts=float(spec.tbp_watts),
            interpolation=Interpolation(spec.interpolation),
            windows=windows,
            margin=Margin(sensor_gain=spec.margin.sensor_gain, model=spec.margin.model),
            lower=Lower(
                floor_watts=lower.floor_watts,
                ramp_up_watts_per_second=lower.ramp_up_watts_per_second,
                ramp_down_watts_per_second=lower.ramp_down_watts_per_second,
                band=None
                if band is None
                else Band(low_hertz=band.low_hertz, high_hertz=band.high_hertz, max_ac_ratio=band.max_ac_ratio),
            ),
            knobs=self._knobs(),
            loop=Loop(
                sensing_s=self._known("loop", "sensing"),
                actuation_s=self._known("loop", "actuation"),
                samples_s=self._known("loop", "samples"),
            ),
            safe_cap_watts=self._safe_cap(),
            lease=Lease(ttl_s=self._duration("lease", "ttl"), grace_s=self._duration("lease", "grace")),
            lowest_draw_watts=None if lowest == "unknown" else float(lowest),
        )

    def _known(self, group: str, name: str) -> float | None:
        try:
            return known_seconds(getattr(getattr(self.spec, group), name), name)
        except ValueError as error:
            raise self.error(f"spec.{group}.{name}", str(error)) from None

    def _duration(self, group: str, name: str) -> float:
        value = self._known(group, name)
        if value is None:
            raise self.error(
                f"spec.{group}.{name}", f"{name}: write a duration such as 200ms; this one is yours to say"
            )
        return value

    def _knobs(self) -> tuple[Knob, ...]:
        """The limits of this vendor whose range is known."""
        vendor = self.spec.match.vendor
        for other in ("amd", "nvidia"):
            if other != vendor and getattr(self.spec.actuators, other) is not None:
                raise self.error(f"spec.actuators.{other}", f"actuators of {other} on a part of {vendor}")
        group = getattr(self.spec.actuators, vendor)
        knobs = []
        for name in _KNOBS:
            limits: tuple[float, ...] | None = getattr(group, f"{name}_watts", None)
            tau = self._known("firmware_filter", f"{name}_tau")
            if limits is not None:
                low, high = self._range(f"spec.actuators.{vendor}.{name}_watts", limits)
                knobs.append(Knob(name=name, low_watts=low, high_watts=high, tau_s=tau))
            elif tau is not None:
                raise self.error(f"spec.firmware_filter.{name}_tau", f"{name} has a filter but no actuator")
        return tuple(knobs)

    def _range(self, part: str, limits: tuple[float, ...]) -> tuple[float, float]:
        name = part.rpartition(".")[2]
        if len(limits) != 2:  # noqa: PLR2004 - a range has two ends
            raise self.error(part, f"{name}: write [lowest, highest]")
        try:
            low, high = (watts(value, name) for value in limits)
        except ValueError as error:
            raise self.error(part, str(error)) from None
        if low > high:
            raise self.error(part, f"[{low:g}, {high:g}]: the lowest value stands first")
        return low, high

    def _safe_cap(self) -> float:
        """The guard writes the cap to the limit on average power: it must be able to."""
        cap = float(self.spec.safe.cap_watts)
        for knob in self._knobs():
            if knob.name in {"ppt0", "limit"} and not knob.low_watts <= cap <= knob.high_watts:
                raise self.error(
                    "spec.safe.cap_watts",
                    f"cap_watts: {knob.name} takes {knob.low_watts:g} to {knob.high_watts:g} W, not {cap:g} W",
                )
        return cap


def _included(reader: _Reader, number: int, name: str) -> list[_Placed]:
    """The rows of another envelope of the same part."""
    path = envelope_path(name)
    if path == Path(name) and not path.is_absolute():
        path = reader.path.parent / path
    other = _Reader(path, read(path, EnvelopeFile, kind=KIND))
    part = f"spec.includes[{number}]"
    if other.spec.includes:
        raise reader.error(part, f"{name} includes others itself; include those instead")
    if other.spec.match != reader.spec.match or other.spec.tbp_watts != reader.spec.tbp_watts:
        raise reader.error(part, f"{name} is for another part or another TBP: its ratios mean other watts")
    return other.rows()


def _superseded(rows: list[_Placed]) -> None:
    """Mark the rows that others replace."""
    named = {row.window.name: row for row in rows}
    for row in rows:
        for name in row.row.supersedes:
            target = named.get(name)
            if target is None or target is row:
                known = ", ".join(n for n in named if n != row.window.name) or "no other row"
                raise ConfigError(
                    row.path, row.line, f"supersedes: there is no other row `{name:.60}`; there are: {known}"
                )
            by = f"{row.window.name} ({row.row.approval})"
            target.window = replace(target.window, superseded_by=by)


def _duplicates(rows: list[_Placed]) -> None:
    """Refuse a name that stands twice, and two rows that bind the same window."""
    names: dict[str, _Placed] = {}
    bound: dict[float, _Placed] = {}
    for row in rows:
        other = names.get(row.window.name) or (bound.get(row.window.over_s) if row.window.enforced else None)
        if other is not None:
            where = f"line {other.line}" if other.path == row.path else f"{other.path}:{other.line}"
            raise ConfigError(
                row.path, row.line, f"{row.window.name}: this window stands a second time; first in {where}"
            )
        names[row.window.name] = row
        if row.window.enforced:
            bound[row.window.over_s] = row
