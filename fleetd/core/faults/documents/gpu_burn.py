"""gpu-burn's output. Its exit code is 0 whatever it found, and its error counter overflows: read with care."""

import re
from collections.abc import Sequence

from fleetd.core.faults.documents.found import Found
from fleetd.core.faults.documents.nvidia_smi import Line
from fleetd.core.policy import Action
from fleetd.model.finding import Severity

MARKS = ("proc'd: ", ": faulty")
"""What a text with something of this has one of, in lower case; looked for before anything is read."""

_VERDICT = re.compile(r"\s*GPU (?P<gpu>\d+): (?P<verdict>OK|FAULTY)\s*$")
_PROGRESS = re.compile(r".*proc'd: .*errors: ")
_ERRORS = re.compile(r"(?P<count>-?\d+)\s+(?:\((?P<word>WARNING!|DIED!)\))?")
_OTHER = re.compile(r"Tested \d+ GPUs|Killing processes|Burning for|Using (?:compare|double|tensor)|Initialized device")


def read_text(lines: Sequence[Line], found: Found) -> set[int]:
    """Read verdicts and progress lines; return the numbers of the lines that were understood."""
    claimed: set[int] = set()
    verdicts: list[tuple[int, str, str, str]] = []
    negative, died = False, None
    for line_number, line in lines:
        verdict = _VERDICT.match(line)
        if verdict is not None:
            verdicts.append((line_number, line, verdict["gpu"], verdict["verdict"]))
        elif _PROGRESS.match(line):
            errors = line.split("errors:")[-1].split("temps:")[0]
            negative = negative or any(int(match["count"]) < 0 for match in _ERRORS.finditer(errors[:2000]))
            if "DIED" in errors and died is None:
                died = (line_number, line)
        elif not _OTHER.search(line):
            continue
        claimed.add(line_number)
        found.values += 1
    _judge(verdicts, negative=negative, found=found)
    if died is not None:
        found.see("burnin.gpu_burn.died", None, *died)
    return claimed


def _judge(verdicts: Sequence[tuple[int, str, str, str]], *, negative: bool, found: Found) -> None:
    faulty = [verdict for verdict in verdicts if verdict[3] == "FAULTY"]
    tool = negative or (len(faulty) == len(verdicts) and len(verdicts) > 1)
    why = (
        "a negative error count or every GPU at once: the tool's own fault is likelier; run it again, compare with ECC"
        if tool
        else "wrong results on this GPU and not on the others"
    )
    for line_number, line, gpu, _ in faulty:
        found.see(
            "burnin.gpu_burn.faulty",
            f"GPU {gpu}",
            line_number,
            line,
            why=why,
            action=Action.MONITOR if tool else None,
            severity=Severity.WARNING if tool else None,
        )
