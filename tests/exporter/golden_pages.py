"""The pages of tests/golden/metrics: `python tests/exporter/golden_pages.py` writes them anew, the tests compare."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from fleetd.exporter.dcgm import DcgmCollector
from fleetd.exporter.native import AgentCollector, BuildCollector, FaultCollector, JobCollector
from fleetd.exporter.page import OPENMETRICS, TEXT, Page
from fleetd.exporter.power import PowerCollector
from tests.exporter.exporter_host import FAULTS, JOBS, POWER, STARTED_AT_S, STATUS

FOLDER = Path(__file__).parents[1] / "golden" / "metrics"


def native() -> Page:
    """What an agent serves by default."""
    return Page(
        [
            AgentCollector(lambda: STATUS, started_at_s=STARTED_AT_S),
            FaultCollector(lambda: FAULTS, started_at_s=STARTED_AT_S),
            JobCollector(lambda: JOBS),
            PowerCollector(lambda: POWER, started_at_s=STARTED_AT_S),
            BuildCollector("0.0.0"),
        ]
    )


def dcgm() -> Page:
    """What `compat: dcgm` adds."""
    return Page([DcgmCollector(lambda: STATUS, host="gpu-001", faults=lambda: FAULTS, jobs=lambda: JOBS)])


def pages() -> dict[str, str]:
    """File name → page."""
    return {
        "native.txt": native().text(TEXT),
        "native.openmetrics.txt": native().text(OPENMETRICS),
        "dcgm.txt": dcgm().text(TEXT),
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
