"""`fleetd_burnin_exposure_seconds_total`: how long each GPU was tested by what, from the file that burn-ins add to."""

from collections.abc import Iterable
from pathlib import Path

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from burnin.exposure import ExposureError, read


class ExposureCollector:
    """Reads the file again when it is another one: burn-ins replace it whole, once a slice."""

    def __init__(self, path: Path) -> None:
        """The file may come later, or never."""
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._families: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        """Nothing where there is no record, or a damaged one: the next burn-in puts that aside and begins anew."""
        try:
            stat = self._path.stat()
        except OSError:
            self._seen, self._families = None, []
            return self._families
        seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if seen != self._seen:
            self._families = list(self._read())
            self._seen = seen
        return self._families

    def _read(self) -> Iterable[Metric]:
        try:
            exposure = read(self._path)
        except ExposureError:
            return
        text = "Seconds of burn-in launches whose results were checked, by GPU and test, since the record began."
        family = CounterMetricFamily("fleetd_burnin_exposure_seconds_total", text, labels=["gpu", "test"])
        for (gpu, test), seconds in sorted(exposure.items()):
            family.add_metric([gpu, test], seconds)
        if family.samples:
            yield family
