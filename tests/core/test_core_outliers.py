"""The GPU that no threshold catches: found against its siblings after enough looks, and nobody else is."""

import random

import pytest

from fleetd.core.limits import Outliers
from fleetd.core.outliers import NO_STREAKS, look
from fleetd.model.event import OutlierFound
from fleetd.model.host import Gpu, Host, Place
from fleetd.model.ids import GpuId, HostName
from fleetd.model.journal import JournalEntry
from fleetd.model.telemetry import GpuSample
from fleetd.stores.codec import dump_entry, load_entry
from tests.core.make_core import Driven, hello

LIMITS = Outliers(z_at_least=6, siblings_at_least=16, in_a_row=3)


def host(n: int, pool: str = "p", sku: str = "s") -> Host:
    d = Driven()
    d.replay.play(0, hello(f"h{n}", gpus=0, place=Place(pool=pool)))
    inventory = tuple(Gpu(gpu=GpuId(f"G{n}-{g}"), index=g, vendor="sim", sku=sku, pci_address=None) for g in range(8))
    known = d.replay.hosts[HostName(f"h{n}")]
    return type(known)(**{**{f: getattr(known, f) for f in type(known).__slots__}, "inventory": inventory})


def sample(gpu: GpuId, rng: random.Random, **changes: float | None) -> GpuSample:
    plain = {
        "utilization_ratio": 1.0,
        "sm_clock_hertz": rng.gauss(1.5e9, 2e7),
        "temperature_celsius": rng.gauss(60, 4),
        "power_watts": rng.gauss(600, 20),
    }
    return GpuSample(gpu=gpu, at_s=0, **{**plain, **changes})


def looks(times: int, hosts: int = 4, **changes: float | None) -> list[OutlierFound]:
    """So many looks at hosts of which `G0-0` is changed."""
    rng, streaks, found = random.Random(7), NO_STREAKS, []  # noqa: S311 - readings, not secrets
    fleet = [host(n) for n in range(hosts)]
    for _ in range(times):
        view = [
            (h, tuple(sample(g.gpu, rng, **(changes if g.gpu == "G0-0" else {})) for g in h.inventory)) for h in fleet
        ]
        streaks, more = look(streaks, view, LIMITS)
        found += more
    return found


@pytest.mark.parametrize(
    ("changes", "metric"),
    [
        ({"sm_clock_hertz": 1.1e9}, "sm_clock_hertz"),
        ({"temperature_celsius": 95.0}, "temperature_celsius"),
        ({"power_watts": 200.0}, "power_watts"),
    ],
)
def test_one_that_is_unlike_its_siblings_is_found_once(changes: dict[str, float | None], metric: str) -> None:
    (found,) = looks(9, **changes)
    assert (found.gpu, found.metric, found.host, found.siblings) == ("G0-0", metric, "h0", 31)
    assert abs(found.z) > 6


@pytest.mark.parametrize("huge", [{"temperature_celsius": 1.7e308}, {"power_watts": -1.7e308}])
def test_a_reading_without_measure_is_found_by_a_score_that_a_ledger_can_keep(huge: dict[str, float | None]) -> None:
    """JSON has no infinity: an entry of the journal that holds one can never be read again."""
    rng, streaks, found = random.Random(7), NO_STREAKS, []  # noqa: S311
    hosts = [host(n) for n in range(4)]
    # Siblings that differ by next to nothing: the score is divided by a spread below 1.
    alike = {"sm_clock_hertz": 1.5e9, "temperature_celsius": 20.0, "power_watts": 60.0}
    for _ in range(LIMITS.in_a_row):
        view = [
            (h, tuple(sample(g.gpu, rng, **{**alike, **(huge if g.gpu == "G0-0" else {})}) for g in h.inventory))
            for h in hosts
        ]
        streaks, more = look(streaks, view, LIMITS)
        found += more
    (one,) = found
    assert (one.gpu, one.metric) == ("G0-0", *huge)
    entry = JournalEntry(
        at_s=0.0, event=one, host=None, orders=(), withheld=(), refused=False, fleet=None, why="unlike", progress=None
    )
    assert load_entry(dump_entry(entry)) == entry


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sm_clock_hertz": 1.9e9},  # faster is no fault
        {"temperature_celsius": 20.0},
        {"sm_clock_hertz": 3e8, "utilization_ratio": 0.1},  # idle
        {"sm_clock_hertz": 3e8, "utilization_ratio": None},  # not known to be busy
        {"sm_clock_hertz": None},
    ],
)
def test_what_is_no_outlier(changes: dict[str, float | None]) -> None:
    assert looks(9, **changes) == []


def test_a_short_excursion_and_a_small_group_are_left_in_peace() -> None:
    assert looks(2, sm_clock_hertz=1.1e9) == []
    assert looks(9, hosts=1, sm_clock_hertz=1.1e9) == []


def test_siblings_that_agree_perfectly_make_nobody_an_outlier_for_a_little() -> None:
    rng = random.Random(1)  # noqa: S311 - readings, not secrets
    plain = {"sm_clock_hertz": 1.5e9, "temperature_celsius": 60.0, "power_watts": 600.0}
    fleet = [host(n) for n in range(4)]
    view = [
        (
            h,
            tuple(
                sample(g.gpu, rng, **{**plain, **({"power_watts": 601.0} if g.gpu == "G0-0" else {})})
                for g in h.inventory
            ),
        )
        for h in fleet
    ]
    assert look(NO_STREAKS, view, Outliers(in_a_row=1))[1] == ()
