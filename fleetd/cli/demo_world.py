"""`fleetd demo --world N`: a simulated fleet's day in seconds, as text on a terminal and as JSON lines on a pipe."""

import json
from collections import Counter

import click
from rich.console import Console

from fleetd.cli.failure import BAD, Failure
from fleetd.config import ConfigError, load_policy
from fleetd.config.shipped import policy_path
from fleetd.model.host import Lifecycle
from fleetd.model.journal import JournalEntry
from fleetd.model.order import RunBurnin
from fleetd.world.day import lay_out
from fleetd.world.world import WorldError

_COLOURS = {"planted": "dim", "quarantine": "red", "withheld": "yellow", "release": "green", "notify": "magenta"}


class _Teller:
    """Tells what happens: one line each."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._incidents: frozenset[str] = frozenset()
        self.told: Counter[str] = Counter()

    def event(self, at_s: float, what: str) -> None:
        """Tell what the timetable makes happen."""
        self._line(at_s, "planted", "", what)

    def entry(self, at_s: float, entry: JournalEntry) -> None:
        """Tell what the controller decided, if it concerns anybody outside it."""
        host = "" if entry.host is None else entry.host.name
        for order in entry.orders:
            if not isinstance(order, RunBurnin):
                self._line(at_s, type(order).__name__.lower(), host, order.why)
        for withheld in entry.withheld:
            self._line(at_s, "withheld", host, f"{type(withheld.order).__name__.lower()}: {withheld.why}")
        self._tell_incidents(at_s, entry)

    def _tell_incidents(self, at_s: float, entry: JournalEntry) -> None:
        if entry.fleet is None:
            return
        for incident in entry.fleet.incidents:
            if incident.id not in self._incidents:
                self._line(at_s, "incident", "", f"{incident.id}: {incident.why}")
        now = frozenset(incident.id for incident in entry.fleet.incidents)
        for over in sorted(self._incidents - now):
            self._line(at_s, "incident", "", f"{over}: over")
        self._incidents = now

    def summary(self, **numbers: object) -> None:
        """Tell how it ended."""
        if self._console.is_terminal:
            self._console.print("  ".join(f"{name.replace('_', ' ')}: {value}" for name, value in numbers.items()))
        else:
            click.echo(json.dumps({"kind": "summary", **numbers}))

    def _line(self, at_s: float, kind: str, host: str, why: str) -> None:
        self.told[kind] += 1
        if not self._console.is_terminal:
            click.echo(json.dumps({"at_s": round(at_s, 3), "kind": kind, "host": host or None, "why": why}))
            return
        hours, minutes, seconds = int(at_s // 3600), int(at_s % 3600 // 60), int(at_s % 60)
        text = f"{hours:02d}:{minutes:02d}:{seconds:02d} {kind:<11} {host:<6} {why}"
        self._console.print(text, style=_COLOURS.get(kind, ""))


def run(*, hosts: int, hours: float, seed: int, policy: str) -> None:
    """Run the day and tell it. Raises Failure when something in it is broken, and on a bad policy."""
    try:
        rules = load_policy(policy_path(policy))
    except ConfigError as error:
        raise Failure(str(error)) from error
    teller = _Teller(Console(highlight=False, markup=False, soft_wrap=True))
    world = lay_out(hosts=hosts, hours=hours, seed=seed, policy=rules)
    world.on_event.append(teller.event)
    world.on_entry.append(teller.entry)
    try:
        outcome = world.run(seconds=hours * 3600.0, settled=False)
    except WorldError as error:
        raise Failure(f"demo: {error}; the same again: --seed {seed}", exit_code=BAD) from error
    states = Counter(host.state for host in outcome.hosts)
    teller.summary(
        hosts=len(outcome.hosts),
        virtual_hours=hours,
        healthy=states[Lifecycle.HEALTHY],
        out_of_service=sum(bool(host.holds) for host in outcome.hosts),
        quarantines=teller.told["quarantine"],
        withheld=teller.told["withheld"],
        releases=teller.told["release"],
        told_a_human=teller.told["notify"],
        journal=outcome.fingerprint[:16],
    )
