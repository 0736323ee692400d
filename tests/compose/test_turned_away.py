"""Who was not served is counted by reason; before the ports are open there is nothing to count."""

from types import SimpleNamespace

from fleetd.compose.turned_away import TurnedAwayCollector


def test_the_counts_of_both_ports_are_shown_once_they_are_open() -> None:
    collector = TurnedAwayCollector(started_at_s=5.0)
    assert list(collector.collect()) == []
    collector.server = SimpleNamespace(turned_away={"limit": 3, "slow_reader": 0})  # type: ignore[assignment]
    (family,) = collector.collect()
    assert {tuple(s.labels.values()): s.value for s in family.samples if s.name.endswith("_total")} == {
        ("limit",): 3.0,
        ("slow_reader",): 0.0,
    }
    collector.strangers = SimpleNamespace(turned_away=2)  # type: ignore[assignment]
    (family,) = collector.collect()
    assert ("enrolment",) in {tuple(sample.labels.values()) for sample in family.samples}
