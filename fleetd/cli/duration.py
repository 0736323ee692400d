"""Durations on the command line: `90d`, `12h`, `30m`."""

import re

import click

from fleetd.cli.failure import Failure

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_DURATION = re.compile(r"([0-9]{1,6})([smhdw])")
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw]?)")


def seconds(text: str) -> float:
    """A duration like `90d` in seconds. Raises Failure."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise Failure(f"{text!r:.40} is no duration: a number and s, m, h, d or w, such as 90d")
    return int(match[1]) * _SECONDS[match[2]]


class Time(click.ParamType[float]):
    """A span of time: `300s`, `5m`, `12h`, `3d`, or a bare number of seconds; more than 0."""

    name = "time"

    def __init__(self, *, longest_s: float = 999_999 * 7 * 86400.0) -> None:
        self.longest_s = longest_s

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read one span in seconds. Fails as click does."""
        match = _TIME.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{str(value)!r:.40} is no time: a number and s, m, h, d or w, such as 5m", param, ctx)
        span_s = float(match[1]) * _SECONDS[match[2] or "s"]
        if not 0 < span_s <= self.longest_s:
            self.fail(f"{str(value)!r:.40}: give more than 0 and at most {self.longest_s:g} seconds", param, ctx)
        return span_s
