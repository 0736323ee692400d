"""Incidents: repeats folded, causes told from follow-ons, the driver's own recovery action obeyed.

The rules, in order: what a program wrote into the kernel log is never acted on; another wording of a fault is that
fault; garbage counters are no fault; a follow-on near its cause on the same device is a victim; what the driver asks
for (XID 154, NVML's recovery action) beats the table for that device, and when it asks for the whole host it blames no
GPU; two codes that together mean more get the action of their combination; a failed reset leaves the reboot.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from fleetd.core.faults.bus import Bus
from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.fault import Fault
from fleetd.core.faults.observation import Finding, Moment, Observation, device_key, rank
from fleetd.core.policy import Action
from fleetd.model.finding import FaultClass, Scope, Severity

MAX_FAULTS = 2000
"""Different (code, device, part) kept; later new ones are counted and reported in a note."""

GARBAGE_STEP = 0xFFFF
"""Counters of a suspended AMD device read as multiples of this, corrected and uncorrected alike."""

_RESET_FAILED = frozenset({"amd.reset.failed", "amd.init.failed"})
_OFTEN_WITHOUT_ADDRESS = ("amd.ring.", "amd.mes.", "amd.hws.", "amd.reset.", "amd.psp.", "amd.init.")
"""AMD codes whose lines leave the address out in some kernels."""
_IMPLAUSIBLE = "amd.ras.implausible"
_CONTAINED = "amd.poison.contained"

_Key = tuple[str, str | None, str]


class Incidents:
    """Collects observations in the order of the input and judges them together."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._faults: dict[_Key, Fault] = {}
        self._beyond = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What the bounds left out."""
        if not self._beyond:
            return ()
        return (f"{self._beyond} observations beyond the first {MAX_FAULTS} different faults were only counted",)

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, observation: Observation) -> Fault | None:
        """Take one observation; returns the fault that it belongs to, None beyond the bound."""
        key = (observation.code, device_key(observation.device), observation.part)
        fault = self._faults.get(key)
        if fault is None and observation.detail_only:
            # The part of a register dump is not printed again: it belongs to whatever was said of this device.
            fault = next((f for (code, dev, _), f in self._faults.items() if (code, dev) == key[:2]), None)
        if fault is None:
            if len(self._faults) >= MAX_FAULTS:
                self._beyond += 1
                return None
            fault = Fault(entry=self._catalogue.entry(observation.code), first=observation)
            self._faults[key] = fault
        fault.again(observation.line, observation.at)
        if observation.detail_only and fault.first is not observation:
            return fault
        fault.take(observation)
        return fault

    def settle(self, moment: Callable[[bytes], Moment | None]) -> None:
        """Read the times of the lines that were only counted.

        Args:
            moment: Reads the time of a line.
        """
        for fault in self._faults.values():
            if fault.last_line is not None:
                at, fault.last_line = moment(fault.last_line), None
                fault.count -= 1
                fault.again(None, at)

    def findings(self, bus: Bus | None = None) -> tuple[Finding, ...]:
        """Judge everything that was added: roots first, the worst first, then the order of the input. Call it once.

        Args:
            bus: What the log said of ports and GPUs.
        """
        faults = self._plausible(self._reworded([*self._faults.values()]))
        faults = self._host_words(self._adopted(faults))
        by_device: dict[str | None, list[Fault]] = defaultdict(list)
        for fault in faults:
            by_device[device_key(fault.first.device)].append(fault)
        gpus = {
            device_key(f.first.device) for f in faults if f.entry.code.startswith(("nvidia.xid", "amd.", "nvidia.bus"))
        }
        for fault in faults:
            self._first_look(fault, gpus, bus)
        for fault in faults:
            self._victim(fault, by_device, faults)
        for group in by_device.values():
            self._combine(group)
        for group in by_device.values():
            self._obey(group, faults)
        self._settle_resets(by_device)
        order = {id(f): n for n, f in enumerate(faults)}
        faults.sort(key=lambda f: (f.role == "victim", -rank(f.final), order[id(f)]))
        return tuple(fault.finding() for fault in faults)

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _reworded(faults: list[Fault]) -> list[Fault]:
        kept: list[Fault] = []
        by_code = {(f.entry.code, device_key(f.first.device)): f for f in faults}
        for fault in faults:
            target = by_code.get((fault.entry.rewords or "", device_key(fault.first.device)))
            if target is None or target.injected:
                kept.append(fault)
                continue
            target.merge([fault])
        return kept

    def _plausible(self, faults: list[Fault]) -> list[Fault]:
        """Equal corrected and uncorrected counts in steps of 0xFFFF are a reading of a powered-down device."""
        kept: list[Fault] = []
        groups: dict[tuple[str | None, str], list[Fault]] = defaultdict(list)
        for fault in faults:
            if fault.entry.code.startswith("amd.ras.") and fault.counts:
                groups[device_key(fault.first.device), fault.first.part.partition(" ")[0]].append(fault)
            else:
                kept.append(fault)
        for group in groups.values():
            values = [f.counts for f in group]
            garbage = len(group) > 1 and all(
                v == values[0] and all(n and n % GARBAGE_STEP == 0 for n in v) for v in values
            )
            if not garbage:
                kept.extend(group)
                continue
            merged = group[0]
            merged.entry = self._catalogue.entry(_IMPLAUSIBLE)
            merged.action = merged.severity = merged.why = None
            merged.merge(group[1:])
            kept.append(merged)
        return kept

    @staticmethod
    def _adopted(faults: list[Fault]) -> list[Fault]:
        """With one AMD device in the log, hang and reset lines without an address are its own."""
        named = {device_key(f.first.device): f.first.device for f in faults if f.entry.code.startswith("amd.")}
        named.pop(None, None)
        if len(named) == 1:
            for fault in faults:
                if fault.first.device is None and fault.entry.code.startswith(_OFTEN_WITHOUT_ADDRESS):
                    fault.first = replace(fault.first, device=next(iter(named.values())))
        return faults

    @staticmethod
    def _host_words(faults: list[Fault]) -> list[Fault]:
        """The driver prints a host-wide action for every GPU: without a fault of a GPU it is one word, about none."""
        words = [f for f in faults if f.entry.obeyed and f.scope is Scope.HOST and not f.injected]
        causes = [f for f in faults if not f.entry.obeyed and f.hardware and rank(f.base) > rank(Action.RESTART_APP)]
        if causes or len(words) < 2:  # noqa: PLR2004 - one word is one word
            return faults
        kept = words[0]
        kept.first = replace(kept.first, device=None)
        kept.merge(words[1:])
        kept.extra.append("said of every GPU of the host: none of them is blamed by it")
        return [f for f in faults if f is kept or f not in words]

    @staticmethod
    def _first_look(fault: Fault, gpus: set[str | None], bus: Bus | None) -> None:
        if fault.injected:
            fault.asked = Action.NONE
            fault.severity = Severity.WARNING
            fault.extra.append("written by a program, not by the kernel: possibly a test, never acted on")
            return
        if fault.entry.fixed:
            return
        rule = fault.rule or (fault.entry.repeat if fault.entry.repeat and fault.entry.repeat.here else None)
        if rule is not None and fault.count >= rule.at_least and rank(rule.then) > rank(fault.base):
            fault.asked = rule.then
            fault.extra.append(f"seen {fault.count} times on the same {rule.same}")
        if fault.entry.on_gpu is None or not fault.first.device:
            return
        if device_key(fault.first.device) in gpus:
            fault.asked = fault.entry.on_gpu
        elif bus is not None and (gpu := bus.gpu_below(fault.first.device)) is not None:
            if device_key(gpu) in gpus:
                fault.extra.append(f"the port of GPU {gpu}, whose own faults say what to do")
            else:
                fault.asked = fault.entry.on_gpu
                fault.extra.append(f"GPU {gpu} is at or below this port")

    @staticmethod
    def _victim(fault: Fault, by_device: dict[str | None, list[Fault]], faults: list[Fault]) -> None:
        if fault.injected:
            return
        if fault.cause is not None:
            fault.role = "victim"
            fault.extra.append(f"the driver names {fault.cause} as the cause")
            return
        device = device_key(fault.first.device)
        for other in faults if device is None else by_device[device]:
            if other is fault or other.injected or not _follows(fault, other) or not fault.near(other):
                continue
            if fault.entry.obeyed and not other.hardware:
                continue
            if _follows(other, fault) and fault.starts_before(other):
                continue  # each may cause the other: the earlier one did
            fault.role = "victim"
            fault.extra.append(f"follows {other.entry.alias} on the same device")
            if fault.entry.fault_class is FaultClass.MEMORY and rank(fault.base) > rank(other.final):
                # An uncontained memory error needs its reset also where something smaller came first.
                other.asked = fault.base
            return

    def _combine(self, group: Sequence[Fault]) -> None:
        for rule in self._catalogue.combinations:
            for fault in group:
                if fault.entry.code != rule.code or fault.injected:
                    continue
                beside = [f for f in group if any(fnmatchcase(f.entry.code, g) for g in rule.beside) and not f.injected]
                if beside and fault.near(beside[0]):
                    fault.asked = rule.action
                    fault.extra.append(f"together with {beside[0].entry.alias}: {rule.why}")

    @staticmethod
    def _obey(group: Sequence[Fault], faults: Sequence[Fault]) -> None:
        for word in (f for f in group if f.entry.obeyed and not f.injected):
            asked = word.base
            whole_host = word.scope is Scope.HOST
            mine = [f for f in group if f is not word and f.role == "root" and f.hardware and not f.entry.obeyed]
            # Where something serious is there, what was only to be watched did not make the driver ask.
            mine = [f for f in mine if rank(f.final) > rank(Action.RESTART_APP)] or mine
            others = [f for f in faults if f is not word and f.role == "root" and f.hardware and not f.entry.obeyed]
            for fault in mine:
                if fault.base is Action.REPLACE or fault.final is Action.REPLACE or fault.injected:
                    continue  # a criterion for replacement stands whatever the driver needs to go on
                if asked is Action.NONE:
                    if rank(fault.final) > rank(Action.MONITOR):
                        fault.asked = Action.MONITOR
                        fault.extra.append("the driver says since that no recovery is pending; prove it by a burn-in")
                else:
                    fault.asked = asked
                    fault.extra.append(f"the driver asks for it ({word.entry.alias})")
            if mine or (whole_host and others):
                word.role = "victim"
                causes = mine or others
                word.extra.append(f"says what {causes[0].entry.alias} needs, blames nothing by itself")

    @staticmethod
    def _settle_resets(by_device: dict[str | None, list[Fault]]) -> None:
        for group in by_device.values():
            if any(f.entry.code == _CONTAINED and not f.injected for f in group):
                for fault in group:
                    if fault.entry.code.startswith("amd.poison.") and rank(fault.final) > rank(Action.MONITOR):
                        fault.asked = Action.MONITOR
                        fault.extra.append("a queue was taken down in its place; judge by the outcome")
            failed = [f for f in group if f.entry.code in _RESET_FAILED and f.role == "root" and not f.injected]
            for fault in group if failed else ():
                if fault.final in (Action.DRAIN, Action.QUARANTINE):
                    fault.asked = Action.REBOOT
                    fault.extra.append("its reset failed, a cold reboot comes first; drain when it returns")


def _follows(effect: Fault, cause: Fault) -> bool:
    """Whether the catalogue says that one comes of the other."""
    if effect.entry.code == cause.entry.code:
        return False
    return any(fnmatchcase(cause.entry.code, glob) for glob in effect.entry.follows)
