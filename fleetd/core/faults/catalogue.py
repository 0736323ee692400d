"""How a code is looked up: the entries of all files of the catalogue, complete."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from fleetd.core.faults.schema import (
    CatalogueFile,
    Combination,
    FaultRow,
    LinkUnit,
    Override,
    RegisterBits,
    Repeat,
    Template,
)
from fleetd.core.policy import Action
from fleetd.model.finding import FaultClass, Scope, Severity

_NUMBERED = {"nvidia.xid.": "XID", "nvidia.sxid.": "SXID", "amd.afid.": "AFID"}
_SHORT = re.compile(r"\s*(?:nvrm:?\s*)?(?:(s?xid|afid)(?:[\s:._#]*|-))?#?(\d{1,6})\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One fault, complete: its own words over those of its template."""

    code: str
    alias: str
    meaning: str
    scope: Scope
    severity: Severity
    action: Action
    on_gpu: Action | None
    fault_class: FaultClass
    clear: str
    investigation: str
    contact_vendor: bool
    repeat: Repeat | None
    follows: tuple[str, ...]
    rewords: str | None
    obeyed: bool
    vendor: str | None
    differs: str | None
    match: tuple[str, ...]
    source: str
    version: str
    fixed: bool = False
    """A site fixed the action: the details of a line do not change it."""
    known: bool = True
    """False: made up for a code that no file has."""


class Catalogue:
    """All entries. Of two with the same code the later one counts. Raises ValueError on a dangling `like`."""

    def __init__(self, files: Iterable[CatalogueFile]) -> None:
        self.combinations: tuple[Combination, ...] = ()
        self.link_units: tuple[LinkUnit, ...] = ()
        self.register_bits: tuple[RegisterBits, ...] = ()
        self.harmless: tuple[str, ...] = ()
        self._entries: dict[str, Entry] = {}
        self._overrides: tuple[Override, ...] = ()
        templates: dict[str, Template] = {}
        for file in files:
            templates.update(file.templates)
            self.combinations += file.combinations
            self.link_units += file.link_units
            self.register_bits += file.register_bits
            self.harmless += file.harmless
            self._overrides += file.overrides
            for fault in file.faults:
                if fault.like not in templates:
                    raise ValueError(f"{fault.code}: there is no template `{fault.like}`")
                self._entries[fault.code] = _complete(fault, templates[fault.like], file)
        self._globs = [code for code in self._entries if "*" in code]
        self._entries = {code: self._overridden(entry) for code, entry in self._entries.items()}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, code: str) -> Entry:
        """The entry of a code; one with `known` false (a warning for a human, no action) when no file has it."""
        if code in self._entries:
            return self._entries[code]
        for glob in self._globs:
            if fnmatchcase(code, glob):
                return self._overridden(replace(self._entries[glob], code=code))
        return self._overridden(_unknown(code))

    def _overridden(self, entry: Entry) -> Entry:
        for override in self._overrides:
            if fnmatchcase(entry.code, override.code):
                entry = replace(
                    entry,
                    action=override.action or entry.action,
                    severity=entry.severity if override.severity is None else override.severity,
                    scope=override.scope or entry.scope,
                    differs=override.reason,
                    meaning=f"{entry.meaning} (site: {override.reason})",
                    fixed=override.action is not None,
                )
        return entry

    def find(self, text: str) -> Entry | None:
        """What `fleetd faults explain TEXT` means: a code, an alias, `79`, `xid 79`, `sxid20034`; None if unknown."""
        if (match := _SHORT.fullmatch(text)) is not None:
            kind = (match[1] or "xid").lower()
            # Numbers of five digits are NVSwitch's; nobody types the S when pasting one.
            kind = "sxid" if match[1] is None and len(match[2]) == 5 else kind  # noqa: PLR2004 - see above
            prefix = {"xid": "nvidia.xid.", "sxid": "nvidia.sxid.", "afid": "amd.afid."}[kind]
            entry = self.entry(f"{prefix}{int(match[2])}")
            return entry if entry.known else None
        wanted = text.strip()
        for entry in self._entries.values():
            if entry.code == wanted.lower() or entry.alias.lower() == wanted.lower():
                return entry
        entry = self.entry(wanted.lower())
        return entry if entry.known else self._unit(wanted)

    def _unit(self, text: str) -> Entry | None:
        """The entry of a unit of NVLink5's decode (`RLW_REMAP`): that of its XID, with what its status words mean."""
        wanted = "_".join(text.upper().split())
        rows = [row for row in self.link_units if wanted in {"_".join(name.upper().split()) for name in row.units}]
        if not rows:
            return None
        entry = self.entry(f"nvidia.xid.{rows[0].xid}")
        states = dict.fromkeys(f"{status}: {state}" for row in rows for status, state in row.states.items())
        said = "; ".join(" ".join(state.split()) for state in states)
        return replace(
            entry,
            meaning=f"{wanted}, a unit of XID {rows[0].xid} ({entry.meaning})",
            investigation=f"by the status word (immediate | investigatory | severity): {said}",
        )


def alias_of(code: str) -> str:
    """The short code derived from a code: `nvidia.xid.79` → `XID79`, else its last two parts in capitals."""
    for prefix, short in _NUMBERED.items():
        if code.startswith(prefix):
            return short + code.removeprefix(prefix)
    return "_".join(code.split(".")[1:]).upper().replace("-", "_")


def _complete(fault: FaultRow, template: Template, file: CatalogueFile) -> Entry:
    return Entry(
        code=fault.code,
        alias=fault.alias or alias_of(fault.code),
        meaning=fault.meaning,
        scope=fault.scope or template.scope,
        severity=template.severity if fault.severity is None else fault.severity,
        action=fault.action or template.action,
        on_gpu=fault.on_gpu,
        fault_class=fault.fault_class or template.fault_class,
        clear=fault.clear or template.clear,
        investigation=fault.investigation or template.investigation,
        contact_vendor=template.contact_vendor if fault.contact_vendor is None else fault.contact_vendor,
        repeat=fault.repeat or template.repeat,
        follows=fault.follows,
        rewords=fault.rewords,
        obeyed=fault.obeyed,
        vendor=fault.vendor,
        differs=fault.differs,
        match=fault.match,
        source=file.source,
        version=file.version,
    )


def _unknown(code: str) -> Entry:
    return Entry(
        code=code,
        alias=alias_of(code),
        meaning="not in the catalogue: a person should look at it",
        scope=Scope.GPU,
        severity=Severity.WARNING,
        action=Action.MONITOR,
        on_gpu=None,
        fault_class=FaultClass.NONE,
        clear="manual",
        investigation="look the code up in the vendor's current table and report it",
        contact_vendor=False,
        repeat=None,
        follows=(),
        rewords=None,
        obeyed=False,
        vendor=None,
        differs=None,
        match=(),
        source="none",
        version="none",
        known=False,
    )
