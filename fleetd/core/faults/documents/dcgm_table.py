"""The text tables of `dcgmi diag`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetd.core.faults.documents.dcgm import GPU_NAMED, Tally, of_message, silent
from fleetd.core.faults.documents.found import Found
from fleetd.core.faults.documents.nvidia_smi import Line

MARKS = ("| pass", "| fail", "| skip", "| warn", "| error")
"""What a text with something of this has one of, in lower case; looked for before anything is read."""

_ROW = re.compile(r"\s*\|(?P<name>[^|]*)\|(?P<value>[^|]*)\|\s*$")
_STATUS = re.compile(
    r"(?P<status>Pass|Fail|Skip|Warn|Failure|Warning)\b\s*(?:-\s*(?P<what>GPUs?:\s*(?P<gpus>[\d, ]+)|All))?",
    re.IGNORECASE,
)


@dataclass(slots=True, kw_only=True)
class _Table:
    """The row that is being read: a long text goes on in the rows below, cut at the cell's width inside words."""

    test: str = ""
    message: str = ""
    line: int = 0
    open: bool = False
    failed: dict[str, tuple[int, str, str, list[str | None]]] = field(default_factory=dict)
    """Test → line, row, status and GPUs: what has not passed."""
    explained: set[str] = field(default_factory=set)


def read_text(lines: Sequence[Line], found: Found) -> set[int]:
    """Read the table of `dcgmi diag`; return the numbers of the lines that were understood."""
    claimed: set[int] = set()
    table, tally = _Table(), Tally()
    for line_number, line in lines:
        row = _ROW.match(line)
        if row is None:
            _close(table, found)
            continue
        if _row(row, (line_number, line), table, tally, found):
            claimed.add(line_number)
            found.values += 1
    _close(table, found)
    for test, (line_number, line, status, devices) in table.failed.items():
        if test not in table.explained:
            for device in devices:
                silent(test, status, device, (line_number, line), found)
    tally.end(found)
    return claimed


def _row(row: re.Match[str], at: Line, table: _Table, tally: Tally, found: Found) -> bool:
    name, value = row["name"].strip(), row["value"]
    status = _STATUS.match(value.strip())
    if name.lower() in ("warning", "error", "info"):
        _close(table, found)
        # A cell is one space, the text, and padding: only the first space is the table's.
        table.open, table.line, table.message = name.lower() != "info", at[0], value[1:]
        return True
    if not name and status is None:
        if table.open:
            table.message = table.message[: 8 * 1024] + value[1:]
        return table.open
    if status is None:
        _close(table, found)
        return False
    _close(table, found)
    table.test = name or table.test
    _status(table, status, at, tally)
    return True


def _status(table: _Table, status: re.Match[str], at: Line, tally: Tally) -> None:
    word = status["status"].lower()
    devices: list[str | None] = [f"GPU {n.strip()}" for n in (status["gpus"] or "").split(",") if n.strip()]
    if word == "pass":
        tally.passed += 1
    elif word == "skip":
        tally.skip(at, devices[0] if devices else None)
    elif table.test:
        table.failed[table.test] = (*at, word, devices or [None])


def _close(table: _Table, found: Found) -> None:
    """End a message: what was cut at the cell's edge is one text again."""
    if not table.open:
        return
    table.open = False
    message = " ".join(_unwrap(table.message).split())
    code = of_message(message)
    gpu = GPU_NAMED.search(message)
    device = None if gpu is None else f"GPU {gpu[1]}"
    if code is None:
        found.wonder(table.line, message)
        return
    table.explained.add(table.test)
    found.see(code, device, table.line, message)


def _unwrap(message: str) -> str:
    """Drop the two spaces of padding that the table puts where it cuts a line (`second  s started` → `seconds`)."""
    return re.sub(r"(?<=\S)  (?=\S)", "", message)
