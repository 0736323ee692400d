"""Documents of the inputs folder, and how a test scans one."""

from functools import cache
from pathlib import Path

from fleetd.config.faults import load_catalogue
from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.documents.read import read
from fleetd.core.faults.observation import ScanResult
from fleetd.core.faults.scan import judge

INPUTS = Path(__file__).parent / "inputs"
KINDS = {"cli", "json", "xml", "prom", "log"}


@cache
def catalogue() -> Catalogue:
    return load_catalogue()


def header(path: Path) -> dict[str, str]:
    lines = path.read_text().partition("# ---\n")[0].splitlines()
    return dict(line[2:].split(": ", 1) for line in lines if ": " in line)


def scan(text: str, wanted: str | None = None) -> ScanResult:
    document = read(text, wanted)
    assert document is not None
    return judge(
        catalogue(),
        document.observations,
        format=document.format,
        unrecognised=document.unrecognised,
        cannot_judge=document.cannot_judge,
        notes=document.notes,
    )


DOCUMENTS = [
    *sorted(path for path in INPUTS.glob("*.txt") if header(path)["kind"] in KINDS),
    *INPUTS.glob("071-*.txt"),  # the fabric manager's own log, filed under the kernel's
]
