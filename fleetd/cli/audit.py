"""`fleetd audit`: who changed what, when, why, and what it was before and after."""

from difflib import get_close_matches
from typing import get_args

import click
import msgspec

from fleetd.cli.connection import ask, connected
from fleetd.cli.duration import seconds
from fleetd.cli.failure import Failure
from fleetd.cli.jsonout import write_json
from fleetd.cli.tables import show, table
from fleetd.cli.utc import utc
from fleetd.model.event import AnyEvent
from fleetd.model.fact import Fact, FactQuery
from fleetd.model.ids import HostName
from fleetd.system import RealClock
from fleetd.uplink.desk import DeskConfig

SCHEMA = "fleetd.audit/1"
_EVENTS = sorted(kind.__name__ for kind in get_args(AnyEvent))


@click.command(name="audit")
@click.option("--host", help="Only about this host.")
@click.option("--who", help="Only of this person, as the table shows them.")
@click.option("--event", help="Only of this kind: OperatorReleased, BudgetRearmed, …")
@click.option("--last", metavar="AGE", help="Only the last 90d, 12h, 30m; by default all that the ledger has.")
@click.option("--everything", is_flag=True, help="Also what the controller decided by itself.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="So many at most.")
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
@connected
def command(
    *,
    desk: DeskConfig,
    host: str | None,
    who: str | None,
    event: str | None,
    last: str | None,
    limit: int,
    json_path: str | None,
    everything: bool,
) -> None:
    """Say who changed what and why, oldest first: what people asked for, also what was refused."""
    if event is not None and event not in _EVENTS:
        near = get_close_matches(event, _EVENTS, n=1, cutoff=0.4)
        meant = f"did you mean {near[0]}?" if near else f"for example {_EVENTS[0]}"
        raise Failure(f"audit: --event {event!r:.60} is no kind of event; {meant}")
    if who is not None and not who.strip():
        raise Failure("audit: --who is empty; leave it out for everybody")
    query = FactQuery(
        limit=limit + 1,  # one more than is shown says whether there are more
        people=not everything,
        host=None if host is None else HostName(host),
        who=who,
        event=event,
        since_s=None if last is None else RealClock().wall_s() - seconds(last),
    )
    found = ask(desk, lambda client: client.facts(query))
    found, more = found[:limit], len(found) > limit
    if write_json(json_path, {"schema": SCHEMA, "entries": [_as_json(fact) for fact in found], "more": more}):
        return
    trail = table("at", "who", "what", "on", "before", "after", "reason", "outcome")
    for fact in found:
        outcome = f"refused: {fact.why}" if fact.refused else fact.why
        on = fact.host or "the fleet"
        trail.add_row(utc(fact.at_s), fact.who or "fleetd", fact.event, on, fact.was, fact.now, fact.reason, outcome)
    show(trail if found else "nothing of the kind is in the journal")
    if more:
        show(f"only the oldest {limit} are shown: --limit shows more, --last the newest")


def _as_json(fact: Fact) -> dict[str, object]:
    body: dict[str, object] = msgspec.to_builtins(fact)
    kept = ("position", "at_s", "who", "event", "host", "reason", "why", "refused", "orders")
    return {**{key: body[key] for key in kept}, "before": fact.was, "after": fact.now}
