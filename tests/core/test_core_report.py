"""The report: a table computed by hand, and what holds for every history."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.core.report import report
from fleetd.core.sums import DAY_S, DEFINITIONS, DIVISIONS, MAX_DAYS, Rates, Report, Sums, percentile, rates
from fleetd.model.fact import BEGINNING, Fact, Kind
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName

A = Kind(vendor="nvidia", sku="H200", pool="train")
B = Kind(vendor="amd", sku="MI350X", pool="train")
H = 3600.0


def fact(hours: float, host: str, state: Lifecycle, event: str = "FindingReceived", **more: Any) -> Fact:
    """A fact so many hours after the start."""
    basic: dict[str, Any] = {
        "position": 1,
        "at_s": hours * H,
        "event": event,
        "host": HostName(host),
        "who": None,
        "reason": "",
        "why": "w",
        "refused": False,
        "was": "",
        "now": "",
        "state": state,
        "kind": A,
        "gpus": 8,
    }
    return Fact(**{**basic, **more})


HEALTHY, SUSPECT, QUARANTINED = Lifecycle.HEALTHY, Lifecycle.SUSPECT, Lifecycle.QUARANTINED
QUALIFYING, PROBATION, RETIRED = Lifecycle.QUALIFYING, Lifecycle.PROBATION, Lifecycle.RETIRED

A_WEEK = [
    fact(0, "a1", QUALIFYING, "AgentConnected"),
    fact(0, "a2", QUALIFYING, "AgentConnected"),
    fact(0, "b1", QUALIFYING, "AgentConnected", kind=B, gpus=4),
    fact(24, "a1", HEALTHY),  # a1: a day to qualify is not in the fleet yet
    fact(24, "a2", HEALTHY),
    fact(24, "b1", HEALTHY, kind=B, gpus=4),
    # a1 is suspected at 48 h for something seen 30 s before, held 15 min later, back at 60 h: 12 h unplanned
    fact(48, "a1", SUSPECT, found_at_s=48 * H - 30),
    fact(48.25, "a1", QUARANTINED, held_by_us=True, found_at_s=48 * H),
    fact(60, "a1", PROBATION, "OperatorReleased", override=True),  # without the proof: a false quarantine
    # a2 is taken out by a person for a day, and given back: planned
    fact(72, "a2", QUARANTINED, "OperatorQuarantined"),
    fact(90, "a2", Lifecycle.REPAIRING, "OperatorRepairs"),
    fact(91, "a2", Lifecycle.REPAIRING, "GpuSwapped"),
    fact(92, "a2", QUALIFYING, "OperatorRepaired"),
    fact(96, "a2", HEALTHY, override=False),
    # b1 fails for good at 120 h: held at once, and still at the end of the week
    fact(120, "b1", QUARANTINED, held_by_us=True, found_at_s=120 * H - 10, kind=B, gpus=4),
    # jobs: 100 h and 50 h on a1, one of them failed; 10 h on b1
    fact(130, "a1", HEALTHY, "JobEnded", job_ok=True, job_seconds=100 * H),
    fact(131, "a1", HEALTHY, "JobEnded", job_ok=False, job_seconds=50 * H),
    fact(132, "b1", QUARANTINED, "JobEnded", held_by_us=True, job_ok=True, job_seconds=10 * H, kind=B, gpus=4),
]


def a_week(**window: float) -> Report:
    return report(A_WEEK, since_s=window.get("since", 0.0) * H, until_s=window.get("until", 168.0) * H)


def test_a_week_computed_by_hand() -> None:
    found = a_week()
    assert found.groups == (
        (
            B,
            Sums(
                host_seconds=144 * H,
                gpu_seconds=144 * H * 4,
                serving_seconds=96 * H,
                serving_gpu_seconds=96 * H * 4,
                unplanned_seconds=48 * H,
                failures=1,
                quarantines=1,
                jobs=1,
                job_seconds=10 * H,
                detect_seconds=(10.0,),
                quarantine_seconds=(0.0,),
            ),
        ),
        (
            A,
            Sums(
                host_seconds=288 * H,
                gpu_seconds=288 * H * 8,
                serving_seconds=(132 + 120) * H,
                serving_gpu_seconds=252 * H * 8,
                unplanned_seconds=12 * H,
                failures=1,
                quarantines=1,
                overturned=1,
                jobs=2,
                jobs_failed=1,
                job_seconds=150 * H,
                swaps=1,
                repairs=1,
                detect_seconds=(30.0,),
                quarantine_seconds=(0.25 * H,),
                return_seconds=(12 * H,),
            ),
        ),
    )
    r = rates(found.whole)
    assert r.availability_ratio == pytest.approx(348 / 432)
    assert r.unplanned_ratio == pytest.approx(60 / 432)
    assert r.mtbf_seconds == 174 * H
    assert r.mtbf_gpu_seconds == (96 * 4 + 252 * 8) / 2 * H
    assert r.job_failures_per_1000_job_hours == pytest.approx(1000 / 160)
    assert r.job_failures_per_1000_gpu_days == pytest.approx(1000 / ((288 * 8 + 144 * 4) / 24))
    assert r.swaps_per_1000_gpu_days == pytest.approx(1000 / 120)
    assert r.false_quarantines_per_10000_host_days == pytest.approx(10_000 / 18)
    assert (r.detect_median_seconds, r.detect_p90_seconds) == (10.0, 30.0)
    assert (r.quarantine_median_seconds, r.return_median_seconds) == (0.0, 12 * H)
    assert [day.quarantines for day in found.days] == [0, 0, 1, 0, 0, 1, 0]
    assert [day.unplanned_seconds / H for day in found.days] == [0, 0, 12, 0, 0, 24, 24]
    assert [day.host_seconds / H for day in found.days] == [0, 72, 72, 72, 72, 72, 72]


def test_by_one_division_the_others_are_summed() -> None:
    assert [name for name, _ in a_week().by("vendor")] == ["amd", "nvidia"]
    ((pool, sums),) = a_week().by("pool")
    assert (pool, sums) == ("train", a_week().whole)


def test_what_was_before_the_window_says_how_hosts_stood_and_is_not_counted() -> None:
    found = a_week(since=50, until=61).whole
    assert (found.failures, found.quarantines, found.overturned) == (0, 0, 1)
    assert found.unplanned_seconds == 10 * H
    assert found.return_seconds == (12 * H,)  # it returned in the window; it left before
    assert found.host_seconds == 33 * H


def test_a_pruned_journal_begins_with_how_hosts_stood() -> None:
    stood = [
        fact(0, "a1", HEALTHY, BEGINNING),
        fact(0, "a2", QUARANTINED, BEGINNING, held_by_us=True),
        fact(0, "a3", QUARANTINED, BEGINNING),  # by a person
        fact(0, "a4", QUALIFYING, BEGINNING),
        fact(0, "a5", RETIRED, BEGINNING),
        fact(10, "a2", HEALTHY),
    ]
    found = report(stood, since_s=0.0, until_s=20 * H).whole
    assert (found.host_seconds, found.unplanned_seconds, found.serving_seconds) == (60 * H, 10 * H, 30 * H)
    assert (found.failures, found.quarantines) == (0, 0)


def test_a_person_looks_and_a_policy_finds_something() -> None:
    found = report(
        [
            fact(0, "a1", HEALTHY),
            fact(10, "a1", SUSPECT, "OperatorBurnin"),
            fact(12, "a1", QUARANTINED, held_by_us=True, found_at_s=12 * H - 1),
            fact(20, "a1", RETIRED, "OperatorRetires", held_by_us=True),
        ],
        since_s=0.0,
        until_s=100 * H,
    ).whole
    assert (found.failures, found.quarantines, found.unplanned_seconds) == (1, 1, 8 * H)
    assert (found.host_seconds, found.quarantine_seconds, found.return_seconds) == (20 * H, (), ())


def test_refused_requests_and_clocks_that_go_back_count_nothing() -> None:
    found = report(
        [
            fact(0, "a1", HEALTHY),
            fact(10, "a1", HEALTHY, "OperatorReleased", refused=True, override=True),
            fact(9, "a1", SUSPECT, found_at_s=11 * H),  # the controller's clock was set back by an hour
            fact(8, "a1", HEALTHY),
        ],
        since_s=0.0,
        until_s=20 * H,
    ).whole
    assert (found.host_seconds, found.overturned, found.detect_seconds) == (20 * H, 0, (0.0,))
    assert found.return_seconds == (0.0,)


@pytest.mark.parametrize("until_s", [0.0, -1.0, (MAX_DAYS + 1) * DAY_S])
def test_a_window_that_is_none_is_refused(until_s: float) -> None:
    with pytest.raises(ValueError, match="window"):
        report([], since_s=0.0, until_s=until_s)


def test_without_anything_there_is_no_rate() -> None:
    nothing = rates(report([], since_s=0.0, until_s=DAY_S).whole)
    assert {getattr(nothing, f.name) for f in fields(nothing)} == {None}


def test_percentiles_are_values_that_happened() -> None:
    assert [percentile([5.0, 1.0, 3.0, 2.0], ratio) for ratio in (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)] == [
        *(1.0, 1.0, 2.0, 3.0, 5.0, 5.0)
    ]
    assert percentile([], 0.5) is None


# ── for every history ───────────────────────────────────────────────────────────────────────────────────────────────

EVENTS = ("FindingReceived", "OperatorQuarantined", "OperatorReleased", "JobEnded", "GpuSwapped", "AgentConnected")


@st.composite
def histories(draw: st.DrawFn) -> list[Fact]:
    hours = sorted(draw(st.lists(st.integers(0, 400), min_size=1, max_size=40)))
    made = []
    for hour in hours:
        name = draw(st.sampled_from(["h1", "h2", "h3"]))
        event = draw(st.sampled_from(EVENTS))
        made.append(
            fact(
                hour,
                name,
                draw(st.sampled_from(list(Lifecycle))),
                event,
                kind=draw(st.sampled_from([A, B, Kind()])),
                gpus=draw(st.sampled_from([1, 8])),
                held_by_us=draw(st.booleans()),
                override=event == "OperatorReleased" and draw(st.booleans()),
                found_at_s=hour * H - 5 if event == "FindingReceived" else None,
                job_ok=draw(st.booleans()) if event == "JobEnded" else None,
                job_seconds=60.0,
            )
        )
    return made


def close(one: Sums, other: Sums) -> bool:
    def alike(a: Any, b: Any) -> bool:
        return sorted(a) == pytest.approx(sorted(b)) if isinstance(a, tuple) else a == pytest.approx(b)

    return all(alike(getattr(one, f.name), getattr(other, f.name)) for f in fields(Sums))


@settings(max_examples=150, deadline=None)
@given(made=histories(), cut=st.integers(1, 399))
def test_parts_sum_up_to_the_whole(made: list[Fact], cut: int) -> None:
    found = report(made, since_s=0.0, until_s=401 * H)
    whole = found.whole
    for division in DIVISIONS:  # over groups
        assert close(sum((sums for _, sums in found.by(division)), Sums()), whole)
    by_host = [report([f for f in made if f.host == h], since_s=0.0, until_s=401 * H).whole for h in ("h1", "h2", "h3")]
    assert close(sum(by_host, Sums()), whole)  # over hosts
    earlier, later = (
        report(made, since_s=0.0, until_s=cut * H).whole,
        report(made, since_s=cut * H, until_s=401 * H).whole,
    )
    assert close(earlier + later, whole)  # over time
    assert sum(day.unplanned_seconds for day in found.days) == pytest.approx(whole.unplanned_seconds)
    assert sum(day.quarantines for day in found.days) == whole.quarantines
    assert 0 <= whole.serving_seconds + whole.unplanned_seconds <= whole.host_seconds * (1 + 1e-9)
    assert whole.host_seconds <= 3 * 401 * H
    assert whole.overturned <= whole.quarantines or any(f.event == BEGINNING for f in made)


def test_one_kind_that_changes_is_counted_where_it_was() -> None:
    """A host that moves to another pool takes its past with it to nobody."""
    other = replace(A, pool="inference")
    found = report(
        [fact(0, "a1", HEALTHY), fact(10, "a1", HEALTHY, "AgentConnected", kind=other)], since_s=0.0, until_s=30 * H
    )
    assert [(kind.pool, sums.host_seconds) for kind, sums in found.groups] == [
        ("inference", 20 * H),
        ("train", 10 * H),
    ]


def test_every_rate_is_defined_in_words_and_nothing_else_is() -> None:
    sums, figures = ({field.name for field in fields(kind)} for kind in (Sums, Rates))
    assert set(DEFINITIONS) <= sums | figures, "a definition is found under the name of its figure"
    of_times = {name.replace("_median", "").replace("_p90", "") for name in figures}
    assert of_times <= set(DEFINITIONS)
