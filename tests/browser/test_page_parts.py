"""Single modules of the page, in the browser that runs them: geometry, numbers, the fleet in filters, power."""

from typing import Any

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from fleetd.model.finding import Ballot, BurninEnded, FaultClass, Verdict
from fleetd.model.ids import BootId, FindingId, HostName
from fleetd.model.power_lease import AreaUse, HostUse, PowerUse
from tests.browser.conftest import Open, Stand, show
from tests.web.made import name_of

pytestmark = pytest.mark.e2e

ABSENT = "\u2013"
_PLAN = """async ([sizes, width, fit]) => {
  const { layOut } = await import("/static/layout.js");
  const made = (hosts) => Array.from({ length: hosts }, (_, number) => ({ name: `h${number}` }));
  const racks = sizes.map(([pool, name, hosts]) => ({ pool, name, hosts: made(hosts) }));
  const { cells, width: w, height, pitch } = layOut(racks, width, fit);
  return { cells: cells.map(({ x, y }) => [x, y]), width: w, height, pitch };
}"""
_WRITE = """async ([name, ...values]) => {
  const format = await import("/static/format.js");
  return values.map((value) => format[name](value).replaceAll("\\u202f", " "));
}"""


@pytest.mark.parametrize(
    ("sizes", "width"),
    [
        ([["a", f"r{number}", 16] for number in range(625)], 1000),
        ([["a", "r1", 1], ["a", "r2", 500], ["a", None, 3], ["b", None, 4000]], 1400),
        ([[None, None, 10_000]], 320),
        ([["a", "r1", 72], ["b", "r2", 2]], 40),
        ([], 800),
    ],
)
def test_every_host_has_a_place_of_its_own_on_the_map(page: Page, sizes: list[Any], width: int) -> None:
    plan = page.evaluate(_PLAN, [sizes, width, 700])
    places = {(x, y) for x, y in plan["cells"]}
    assert len(places) == len(plan["cells"]) == sum(hosts for _, _, hosts in sizes)
    pitch = plan["pitch"]
    assert all(x % 1 == 0 and 0 <= x < max(width, pitch) and 0 <= y <= plan["height"] - pitch for x, y in places)
    by_line: dict[int, list[int]] = {}
    for x, y in places:
        by_line.setdefault(y, []).append(x)
    gaps = [b - a for xs in by_line.values() for a, b in zip(sorted(xs), sorted(xs)[1:], strict=False)]
    assert min(gaps, default=pitch) >= pitch


@pytest.mark.parametrize(
    ("name", "values", "written"),
    [
        ("watts", [None, 0, 651.4, 12_340, 2.5e6], [ABSENT, "0 W", "651 W", "12.3 kW", "2.50 MW"]),
        ("celsius", [None, 0, 61.6], [ABSENT, "0 °C", "62 °C"]),
        ("hertz", [None, 1.755e9], [ABSENT, "1755 MHz"]),
        ("ratio", [None, 0, 0.5, 1], [ABSENT, "0 %", "50 %", "100 %"]),
        ("count", [None, 0, 10_000, 1_234_567], [ABSENT, "0", "10 000", "1 234 567"]),
        ("span", [None, 0, 61, 600, 7200, 200_000], [ABSENT, "0 s", "61 s", "10 min", "2 h", "2 d"]),
        ("stamp", [None, 0, 1e15], [ABSENT, "1970-01-01 00:00:00 Z", "1000000000000000 s from 1970"]),
    ],
)
def test_what_is_absent_is_never_zero(page: Page, name: str, values: list[float | None], written: list[str]) -> None:
    assert page.evaluate(_WRITE, [name, *values]) == written


def test_filters_narrow_the_fleet_and_stay_in_the_address(page: Page, open_page: Open) -> None:
    page.get_by_label("Pool").select_option("train-a")
    expect(page.locator(".fleet-main .note")).to_have_text("72 hosts in 6 racks")
    page.locator("[data-key=state-quarantined]").click()
    expect(page.locator("[data-key=state-quarantined]")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Table").click()
    states = page.locator("tbody .badge")
    expect(states.first).to_have_text("quarantined")
    assert set(states.all_inner_texts()) == {"quarantined"}
    other = open_page(page.url)
    expect(other.locator("tbody .badge")).to_have_count(states.count())
    expect(other.get_by_label("Pool")).to_have_value("train-a")


def test_a_host_is_opened_by_a_click_on_its_cell(page: Page) -> None:
    where = page.evaluate(
        """() => {
          const box = document.getElementById("map").getBoundingClientRect();
          return [box.left + 6, box.top + 26 + 13 + 6];
        }"""
    )
    page.mouse.move(*where)
    told = page.locator(".tip").inner_text()
    page.mouse.click(*where)
    expect(page.locator("h1")).to_have_text(told.split(":")[0])


def test_a_fleet_without_hosts_says_what_will_happen(open_page: Open, stand: Stand) -> None:
    page = open_page("about:blank")
    empty = {**stand.get("/fleet/map"), "racks": []}
    page.route("**/api/v1/fleet/map", lambda route: route.fulfill(json=empty))
    page.goto(stand.url)
    expect(page.locator("#view")).to_contain_text("No host has reported yet")


def test_power_is_a_tree_and_hosts_that_lack_most_come_first(open_page: Open, stand: Stand) -> None:
    def area(name: str, parent: str | None, *, demand: float) -> AreaUse:
        return AreaUse(
            name=name, parent=parent, budget_watts=1e5, reserved_watts=9e4, demand_watts=demand, stranded_watts=0.0
        )

    def host(name: str, *, demand: float, lease: float | None) -> HostUse:
        return HostUse(
            name=HostName(name),
            area="row-1",
            safe_watts=4e3,
            max_watts=1e4,
            reserved_watts=6e3,
            demand_watts=demand,
            lease_watts=lease,
            left_s=None if lease is None else 41.0,
        )

    use = PowerUse(
        areas=[area("row-1", "hall", demand=2e5), area("hall", None, demand=2e5)],
        hosts=[host("h1", demand=6e3, lease=6e3), host("h2", demand=9e3, lease=None)],
        settles_s=12.0,
    )
    page = open_page("about:blank")
    body = msgspec.json.encode(use)
    page.route("**/api/v1/power", lambda route: route.fulfill(body=body, content_type="application/json"))
    page.goto(stand.url)
    show(page, "#/power")
    expect(page.locator(".table-box").first.locator("tbody th")).to_have_text(["hall", "row-1"])
    expect(page.locator(".table-box").last.locator("tbody th")).to_have_text(["h2", "h1"])
    expect(page.locator("#view")).to_contain_text("none: safe cap")
    expect(page.locator("#view .warn")).to_contain_text("12")
    found: Any = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_signatures_of_a_run_are_told_key_by_key(open_page: Open, stand: Stand) -> None:
    name = name_of(80)
    run = BurninEnded(
        id=FindingId("run-1"),
        host=name,
        boot_id=BootId("boot-1"),
        at_s=1e9,
        why="all GPUs agree",
        order_id=None,
        level="qualify",
        verdict=Verdict.PASS,
        fault_class=FaultClass.NONE,
        seed=7,
        vote_key="h200/575",
        culprits=(),
        ballots=tuple(Ballot(key=f"gemm/{number}", fingerprint=f"{number:016x}") for number in range(3)),
    )
    detail = {**stand.get(f"/hosts/{name}"), "findings": [msgspec.to_builtins(run)]}
    page = open_page("about:blank")
    page.route(f"**/api/v1/hosts/{name}", lambda route: route.fulfill(json=detail))
    page.goto(f"{stand.url}#/host/{name}")
    card = page.locator(".card.run.pass")
    expect(card).to_contain_text("qualify: pass")
    card.get_by_text("3 signatures compared with other hosts").click()
    expect(card.locator(".print")).to_have_text([f"{number:016x}" for number in range(3)])
    found: Any = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
