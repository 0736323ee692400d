"""Metrics of what waits for a human, by the area that it is about: an alert has to say which rack, or which feed.

Labels are `area_kind` (`fleet`, `pool`, `rack`, …) and `area` (its name, empty for the fleet), so that `area` means the
same as in the power tree. The series of the fleet is always there: 0 is an answer, and no data is none.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from fleetd.core.fleet import FLEET, Fleet, areas_of
from fleetd.model.fleet import Area, AreaKey, FleetRecord, Incident, IncidentKind
from fleetd.model.host import Host

AREAS_MAX = 100
"""Areas with a series of their own, the largest; what is in others counts for the fleet, so that sums stay right."""
_NARROW_FIRST = (Area.NVLINK_DOMAIN, Area.RACK, Area.POWER_DOMAIN, Area.POOL, Area.SKU)
"""Kinds of area that trouble can be in. Not jobs: each would be a new series."""
_STANDS_IN = (Area.RACK, Area.POOL)
"""What says where a host is: the first that is known."""


def area_metrics(hosts: Sequence[Host], fleet: Fleet, record: FleetRecord) -> Iterator[Metric]:
    """Tripped budgets, withheld quarantines and open incidents, by area."""
    tripped = _bounded(Counter(one.key for one in record.tripped))
    text = "Budgets that withhold quarantines until a human re-arms them, by area; 0: none has tripped."
    yield _family("fleetd_budget_tripped", text, tripped)
    charged = _bounded(Counter(_place(host) for host in hosts if host.charges))
    text = "Hosts whose quarantine is withheld, by rack (else pool, else fleet); each counts once."
    yield _family("fleetd_hosts_charged", text, charged)
    known = {host.name: host for host in hosts}
    text = "Open incidents by kind, in the smallest area that their hosts share."
    family = GaugeMetricFamily("fleetd_incidents_open", text, labels=["kind", "area_kind", "area"])
    for kind in IncidentKind:
        of_kind = (one for one in record.incidents if one.kind is kind)
        found = Counter(shared_area([known[n] for n in one.hosts if n in known], fleet, one) for one in of_kind)
        for key, number in _bounded(found).items():
            family.add_metric([kind.value, key.area.value, key.name], number)
    yield family


def shared_area(hosts: Iterable[Host], fleet: Fleet, incident: Incident) -> AreaKey:
    """The smallest area that all hosts of an incident are in; the fleet, if there is no smaller one.

    Of an incident with more hosts than it lists, the listed ones stand for all.
    """
    common: set[AreaKey] | None = None
    for host in hosts:
        areas = {key for key in areas_of(host) if key.area in _NARROW_FIRST}
        common = areas if common is None else common & areas
    everyone = fleet.count(FLEET).hosts
    sizes = {key: fleet.count(key).hosts for key in common or ()}
    # An area with fewer hosts than the incident is not what all of them share: the unlisted ones are elsewhere.
    fitting = [key for key, size in sizes.items() if incident.hosts_total <= size < everyone]
    return min(fitting, key=lambda key: (sizes[key], _NARROW_FIRST.index(key.area), key.name), default=FLEET)


def _place(host: Host) -> AreaKey:
    """The one area that a host is counted in."""
    areas = {key.area: key for key in areas_of(host)}
    return next((areas[kind] for kind in _STANDS_IN if kind in areas), FLEET)


def _bounded(found: Mapping[AreaKey, int]) -> dict[AreaKey, int]:
    """The fleet's number first, with all that is in no area of its own, then the largest areas."""
    areas = sorted((key for key in found if key != FLEET), key=lambda key: (-found[key], key))
    rest = sum(found[key] for key in areas[AREAS_MAX:])
    return {FLEET: found.get(FLEET, 0) + rest, **{key: found[key] for key in areas[:AREAS_MAX]}}


def _family(name: str, text: str, found: Mapping[AreaKey, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["area_kind", "area"])
    for key, number in found.items():
        family.add_metric([key.area.value, key.name], number)
    return family
