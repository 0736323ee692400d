"""Decisions about the fleet as one thing: budgets re-armed, automation stopped and resumed, incidents closed."""

from dataclasses import replace
from typing import assert_never

from fleetd.core.lifecycle import line
from fleetd.core.step import Step
from fleetd.core.storm import key_of_incident
from fleetd.model.event import AutomationResumed, AutomationStopped, BudgetRearmed, FleetEvent, IncidentClosed, Rejudged
from fleetd.model.fleet import FleetRecord, Stopped
from fleetd.model.host import Host


def judge_fleet(*, now_s: float, record: FleetRecord, event: FleetEvent) -> Step[None]:
    """Decide on an event of the whole fleet. A request that would change nothing is refused."""
    objection = _objection(record, event)
    if objection is not None:
        return Step(state=None, why=objection, refused=True)
    who, reason = line(event.who), line(event.reason)
    match event:
        case BudgetRearmed():
            said = f"re-arms the budget of {', '.join(str(t.key) for t in record.tripped)}"
            record = replace(record, tripped=())
        case AutomationStopped():
            said = "stops automation"
            record = replace(record, stopped=Stopped(who=who, reason=reason, at_s=now_s))
        case AutomationResumed():
            said = "resumes automation"
            record = replace(record, stopped=None)
        case IncidentClosed():
            said = f"closes {event.incident}, its hosts are {'acquitted' if event.acquit else 'judged as they are'}"
            record = replace(record, incidents=tuple(i for i in record.incidents if i.id != event.incident))
        case _:
            assert_never(event)
    return Step(state=None, fleet=record, why=f"{who} {said}: {reason}")


def _objection(record: FleetRecord, event: FleetEvent) -> str | None:
    """Why a request would change nothing."""
    if isinstance(event, BudgetRearmed) and not record.tripped:
        return "no quarantine budget has tripped: there is nothing to re-arm"
    if isinstance(event, AutomationStopped) and record.stopped is not None:
        return f"automation is stopped already by {record.stopped.who}: {record.stopped.reason}"
    if isinstance(event, AutomationResumed) and record.stopped is None:
        return "automation is not stopped"
    if isinstance(event, IncidentClosed) and all(i.id != event.incident for i in record.incidents):
        return f"no incident `{line(event.incident)}` is open"
    return None


def rejudgement(event: FleetEvent, host: Host) -> Rejudged | None:
    """What a fleet event means for a host: judge it anew if something was kept back from it; None if it means nothing.

    What was withheld is not carried out from a backlog: each host is judged as it is now.
    """
    match event:
        case AutomationStopped():
            return None
        case IncidentClosed():
            key = key_of_incident(event.incident)
            if all(charge.key != key for charge in host.charges):
                return None
            return Rejudged(host=host.name, why="an incident is closed", acquitted=key if event.acquit else None)
        case BudgetRearmed():
            why = "the budget is re-armed"
        case AutomationResumed():
            why = "automation goes on"
        case _:
            assert_never(event)
    unheard = host.pending is not None and not host.pending.accepted
    kept_back = host.charges or host.due or unheard or (host.held and host.proof)
    return Rejudged(host=host.name, why=why, acquitted=None) if kept_back else None
