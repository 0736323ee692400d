"""Exposure on the page of metrics: what the file says, as long as it says something."""

from pathlib import Path

from burnin.exposure import add
from fleetd.exporter.exposure import ExposureCollector
from fleetd.exporter.page import OPENMETRICS, Page


def test_the_file_is_shown_by_gpu_and_test_and_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "exposure.json"
    collector = ExposureCollector(path)
    page = Page([collector])
    assert page.text() == ""
    add(path, {("GPU-1", "int"): 1.5, ("GPU-0", "int"): 2.0})
    assert 'fleetd_burnin_exposure_seconds_total{gpu="GPU-1",test="int"} 1.5\n' in page.text()
    assert "# TYPE fleetd_burnin_exposure_seconds counter" in page.text(OPENMETRICS)
    assert collector.collect() is collector.collect()  # not read twice, not written twice
    add(path, {("GPU-1", "int"): 1.0})
    assert 'fleetd_burnin_exposure_seconds_total{gpu="GPU-1",test="int"} 2.5\n' in page.text()


def test_a_record_that_is_damaged_or_gone_is_no_series(tmp_path: Path) -> None:
    path = tmp_path / "exposure.json"
    collector = ExposureCollector(path)
    add(path, {("GPU-1", "int"): 1.5})
    assert len(list(collector.collect())) == 1
    path.write_text("{")
    assert list(collector.collect()) == []
    path.unlink()
    assert list(collector.collect()) == []
