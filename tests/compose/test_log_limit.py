"""S37: the agent's own log, through the real set-up of it: a flood of one message fills no disk."""

import asyncio
import io
import json

import structlog

from fleetd.compose.log_limit import LogLimit
from fleetd.core.log_limit import LINES_MAX, WINDOW_S
from fleetd.exporter.page import Page
from fleetd.system import setup_logging


class Clock:
    now_s = 1.0

    def wall_s(self) -> float:
        return 1.7e9

    def elapsed_s(self) -> float:
        return self.now_s

    async def sleep_s(self, seconds: float) -> None:
        del seconds
        await asyncio.sleep(0)


def test_s37_a_flood_of_one_message_is_limited_and_said() -> None:
    clock, stream = Clock(), io.StringIO()
    limit = LogLimit(clock)
    before = structlog.get_config()
    try:
        setup_logging(stream, limit=limit)
        log = structlog.get_logger()
        for number in range(5000):
            log.error("finding_not_spooled", number=number)
        log.error("silent", gpu="GPU-3")
        clock.now_s += WINDOW_S
        log.error("finding_not_spooled", number=5000)
    finally:
        structlog.configure(**before)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.get("number") for line in lines] == [*range(LINES_MAX), None, 5000]
    assert lines[-2]["event"] == "silent", "another message gets through"
    assert lines[-1]["withheld_before"] == limit.withheld_total == 5000 - LINES_MAX
    assert f"fleetd_agent_log_lines_withheld_total {float(limit.withheld_total)}\n" in Page([limit]).text()
