"""What a report says in words: the lines above its table, and the text of each column."""

from fleetd.cli.utc import utc
from fleetd.core.sums import DAY_S, Report, Sums, rates


def heading(found: Report, objective: float) -> list[str]:
    """What stands above the table."""
    lines = [f"{utc(found.since_s)} to {utc(found.until_s)}"]
    if found.known_from_s is None:
        return [*lines, "nothing has been reported yet"]
    if found.known_from_s > found.since_s:
        lines.append(f"the ledger begins at {utc(found.known_from_s)}: nothing is known of what was before")
    rate = rates(found.whole).false_quarantines_per_10000_host_days
    if rate is not None:
        said = "met" if rate <= objective else "missed"
        lines.append(f"false quarantines per 10,000 host days: {rate:.2f}, objective {objective:g}: {said}")
    return lines


def columns(sums: Sums) -> list[tuple[str, str]]:
    """Title and text of each column."""
    r = rates(sums)
    return [
        ("host days", f"{sums.host_seconds / DAY_S:.1f}"),
        ("available", _percent(r.availability_ratio)),
        ("unplanned", _percent(r.unplanned_ratio)),
        ("failures", str(sums.failures)),
        ("MTBF", _span(r.mtbf_seconds)),
        ("job failures / 1000 h", _number(r.job_failures_per_1000_job_hours)),
        ("swaps / 1000 GPU days", _number(r.swaps_per_1000_gpu_days)),
        ("quarantines (false)", f"{sums.quarantines} ({sums.overturned})"),
        ("detect p50, p90", f"{_span(r.detect_median_seconds)}, {_span(r.detect_p90_seconds)}"),
        ("quarantine p50, p90", f"{_span(r.quarantine_median_seconds)}, {_span(r.quarantine_p90_seconds)}"),
        ("return p50, p90", f"{_span(r.return_median_seconds)}, {_span(r.return_p90_seconds)}"),
    ]


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.3f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _span(value: float | None) -> str:
    if value is None:
        return "-"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.1f} s"
