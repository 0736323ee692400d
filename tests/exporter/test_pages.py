"""The pages as text: golden, read with Prometheus's own parsers, and checked with its own promtool."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from fleetd.exporter.native import AgentCollector, FaultCollector, JobCollector
from fleetd.exporter.page import OPENMETRICS, TEXT, Page, negotiate
from tests.exporter import golden_pages
from tests.exporter.exporter_host import FAULTS, H200, JOBS, MI300X, STARTED_AT_S, STATUS, full


@pytest.mark.parametrize("name", ["native.txt", "native.openmetrics.txt", "dcgm.txt"])
def test_the_golden_page_is_what_is_served(name: str) -> None:
    golden = (golden_pages.FOLDER / name).read_text(encoding="utf-8")
    assert golden == golden_pages.pages()[name], "changed on purpose? python tests/exporter/golden_pages.py"


def promtool(page: str) -> tuple[int, list[str]]:
    program = shutil.which("promtool")
    assert program, "promtool is not installed; install Debian's prometheus (make deps)"
    run = subprocess.run([program, "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    return run.returncode, (run.stdout + run.stderr).splitlines()


def test_promtool_finds_nothing_on_the_native_page() -> None:
    assert promtool(golden_pages.native().text()) == (0, [])


def test_promtool_finds_on_the_compat_page_only_what_the_names_of_dcgm_exporter_bring_with_them() -> None:
    code, lines = promtool(golden_pages.dcgm().text())
    assert code == 3, "it parses (1: it does not), and the linter has something to say"
    theirs = re.compile(
        r"DCGM_FI_\w+ (counter metrics should have \"_total\" suffix"
        r"|label names should be written in 'snake_case' not 'camelCase'"
        r"|metric name should not include type 'counter')"
    )
    assert [line for line in lines if not theirs.fullmatch(line)] == []


def test_promtool_would_find_a_fault() -> None:
    assert promtool("no_help 1\n")[0] != 0


@pytest.mark.parametrize("page", [golden_pages.native, golden_pages.dcgm])
def test_both_formats_say_the_same_to_prometheus(page: type[Page]) -> None:
    def values(families: Iterable[Metric]) -> dict[tuple[str, ...], float]:
        return {  # the parser of the text format calls every counter `_total`
            (sample.name.removesuffix("_total"), *(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
            if not sample.name.endswith("_created")
        }

    text = values(read_text(page().text(TEXT)))
    assert text == values(read_openmetrics(page().text(OPENMETRICS)))
    assert len(text) > 50


def test_own_counters_have_creation_times_in_openmetrics_and_the_drivers_have_none() -> None:
    families = {family.name: family for family in read_openmetrics(golden_pages.native().text(OPENMETRICS))}
    for name, family in families.items():
        created = [sample.value for sample in family.samples if sample.name == f"{name}_created"]
        if family.type != "counter" or name.startswith("fleetd_gpu_"):
            assert created == [], "when a driver was loaded is not known: a made-up time would make up rates"
        else:
            assert set(created) == {STARTED_AT_S}, name
            assert len(created) == sum(sample.name == f"{name}_total" for sample in family.samples)
    assert "_created" not in golden_pages.native().text(TEXT)


def test_s40_faults_are_counted_by_code_and_the_time_of_the_last_is_told() -> None:
    found = {
        (sample.name, sample.labels["code"], sample.labels["gpu"]): sample.value
        for family in read_text(Page([FaultCollector(lambda: FAULTS)]).text())
        for sample in family.samples
    }
    assert found["fleetd_faults_total", "nvidia.xid.13", H200] == 7.0
    assert found["fleetd_faults_total", "agent.driver_unresponsive", ""] == 2.0
    assert found["fleetd_fault_last_seen_timestamp_seconds", "nvidia.xid.79", H200] == STARTED_AT_S + 30.0
    assert Page([FaultCollector(tuple)]).text() == ""


def test_a_user_of_a_gpu_is_one_sample_and_an_unknown_one_is_none() -> None:
    assert Page([JobCollector(tuple)]).text() == ""
    (family,) = read_text(Page([JobCollector(lambda: JOBS)]).text())
    labels = [sample.labels for sample in family.samples]
    assert [(one["gpu"], one["job_id"], one["pod"]) for one in labels] == [
        (H200, "4711", ""),
        (MI300X, "", 'llm-0 "blue"'),
    ]


def test_each_gpu_has_the_age_of_its_own_reading() -> None:
    text = Page([AgentCollector(lambda: STATUS)]).text()
    ages = {
        sample.labels["gpu"]: sample.value
        for family in read_text(text)
        if family.name == "fleetd_gpu_sample_age_seconds"
        for sample in family.samples
    }
    assert ages == {H200: 0.25, MI300X: 8.25}


def test_readings_that_became_stale_are_gone_with_their_age() -> None:
    text = Page([AgentCollector(lambda: replace(STATUS, samples=(), samples_age_s=31.0))]).text()
    assert "fleetd_gpu_power_watts" not in text
    assert "fleetd_gpu_sample_age_seconds" not in text
    assert "fleetd_gpu_info" in text, "the GPUs are still those of the host"


class Counting:
    """A family that is made anew for every other page."""

    def __init__(self) -> None:
        self.writes = 0
        self.family = self._make()

    def _make(self) -> Metric:
        counting = self

        class Family(CounterMetricFamily):
            @property
            def documentation(self) -> str:
                counting.writes += 1
                return "Said when it is written."

            @documentation.setter
            def documentation(self, _text: str) -> None:
                pass

        return Family("seen_total", "", value=1.0)

    def collect(self) -> Iterable[Metric]:
        yield self.family

    def renew(self) -> None:
        self.family = self._make()


def test_a_family_that_has_not_changed_is_not_written_again() -> None:
    counting = Counting()
    page = Page([counting])
    assert page.text() == page.text() == page.text()
    assert counting.writes == 1
    counting.renew()
    assert "seen_total 1.0" in page.text()
    assert counting.writes == 2


def test_a_new_round_of_readings_is_shown_at_once() -> None:
    status = [STATUS]
    page = Page([AgentCollector(lambda: status[0])])
    before = page.text()
    status[0] = replace(STATUS, samples=(replace(full(H200), power_watts=1.5),))
    assert f'fleetd_gpu_power_watts{{gpu="{H200}"}} 1.5\n' in page.text()
    assert f'fleetd_gpu_power_watts{{gpu="{H200}"}} 1.5\n' not in before


def test_values_and_labels_are_written_as_the_formats_ask() -> None:
    family = GaugeMetricFamily("odd", 'a "quote", a \\ and\na line', labels=["what"])
    for what, value in (('"', float("inf")), ("\\", float("nan")), ("\n", 1e300)):
        family.add_metric([what], value)

    class One:
        def collect(self) -> Iterable[Metric]:
            return [family]

    for read, content_type in ((read_text, TEXT), (read_openmetrics, OPENMETRICS)):
        (found,) = read(Page([One()]).text(content_type))
        assert found.documentation == family.documentation
        assert {s.labels["what"]: str(s.value) for s in found.samples} == {'"': "inf", "\\": "nan", "\n": "1e+300"}


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain", TEXT),
        ("application/openmetrics-text; version=1.0.0", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.5", TEXT),
        ("application/openmetrics-text;q=x", TEXT),
    ],
)
def test_the_format_is_the_one_that_is_liked_best(accept: str, expected: str) -> None:
    assert negotiate(accept) == expected
