"""Durations on the command line: `90d`, `12h`, `30m`."""

import re

from fleetd.cli.failure import Failure

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_DURATION = re.compile(r"([0-9]{1,6})([smhdw])")


def seconds(text: str) -> float:
    """A duration like `90d` in seconds. Raises Failure."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise Failure(f"{text!r:.40} is no duration: a number and s, m, h, d or w, such as 90d")
    return int(match[1]) * _SECONDS[match[2]]
