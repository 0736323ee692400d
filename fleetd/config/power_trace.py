"""A power trace: CSV with the columns `at_s,watts`, each line holding until the next one."""

import math
import statistics
from itertools import pairwise
from pathlib import Path

from fleetd.config.envelope_file import NONE_OF_A_DRIVER, WATTS_HIGH
from fleetd.config.strict import ConfigError
from fleetd.core.power.checker import Trace

HEADER = "at_s,watts"
MAX_LINES = 1_000_000
"""20 s at 20 µs: more is checked faster where it is made."""
MAX_LINE_CHARS = 100
"""No line of two numbers is longer; what is read of another file stays small."""
MAX_SECONDS = 1e10
"""Three centuries: seconds since 1970 are below it, milliseconds are not."""
GAP_FACTOR = 10.0
"""A step of more than so many medians is a gap: what was drawn in it is unknown, not constant."""


def read_trace(path: Path) -> Trace:
    """Read a trace. The last line only says when the one before it ends. Raises ConfigError, with the line."""
    lines = _lines(path)
    if not lines or lines[0].replace(" ", "") != HEADER:
        raise ConfigError(path, 1, f"a trace begins with the line `{HEADER}`")
    samples = [_sample(path, number, text) for number, text in enumerate(lines[1:], start=2)]
    if len(samples) < 2:  # noqa: PLR2004 - the last line only ends the trace
        raise ConfigError(path, len(lines), "a trace needs two lines at least: the last one ends it")
    steps = [b[0] - a[0] for a, b in pairwise(samples)]
    for number, step in enumerate(steps, start=3):
        if step <= 0:
            raise ConfigError(path, number, f"at_s {samples[number - 2][0]:g} is not after the line before it")
    typical = statistics.median(steps)
    for number, step in enumerate(steps, start=3):
        if step > GAP_FACTOR * typical:
            raise ConfigError(
                path,
                number,
                f"a gap of {step:.6g} s, where lines are {typical:.6g} s apart: what was drawn in it is unknown; "
                "cut the trace there",
            )
    return Trace([watts for _, watts in samples[:-1]], steps)


def _lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig") as file:  # spreadsheets begin a file with a byte order mark
            read = iter(lambda: file.readline(MAX_LINE_CHARS), "")
            lines = [line.rstrip("\r\n") for _, line in zip(range(MAX_LINES + 2), read, strict=False)]
    except FileNotFoundError:
        raise ConfigError(path, None, "there is no such file") from None
    except OSError as error:
        raise ConfigError(path, None, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(path, None, "is not UTF-8 text") from None
    if len(lines) > MAX_LINES + 1:
        raise ConfigError(path, None, f"has more than {MAX_LINES} lines; cut it into pieces")
    return lines


def _sample(path: Path, number: int, text: str) -> tuple[float, float]:
    cells = text.split(",")
    if len(cells) != 2:  # noqa: PLR2004 - the header's columns
        raise ConfigError(path, number, f"expected `{HEADER}`, got `{text:.40}`")
    if not cells[1].strip():
        raise ConfigError(path, number, "a gap: there is no power in this line; cut the trace there")
    try:
        at_s, watts = float(cells[0]), float(cells[1])
    except ValueError:
        raise ConfigError(path, number, f"`{text:.40}` is not two numbers") from None
    if not (math.isfinite(at_s) and math.isfinite(watts)):
        raise ConfigError(path, number, "a gap: the number is not finite; cut the trace there")
    if abs(at_s) > MAX_SECONDS:
        raise ConfigError(path, number, f"at_s {at_s:g} is no time in seconds; is it in another unit?")
    if watts < 0:
        raise ConfigError(path, number, f"{watts:g} W is no draw")
    # Both would else be told as a broken envelope.
    if watts in NONE_OF_A_DRIVER:
        raise ConfigError(path, number, f"a gap: {watts:.0f} is what a driver says for `no value`; cut the trace there")
    if watts > WATTS_HIGH:
        raise ConfigError(path, number, f"{watts:g} W is no power of one GPU; is it in milliwatts, or a node's total?")
    return at_s, watts
