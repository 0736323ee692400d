"""Three controllers share a ledger in a real PostgreSQL; the judge is killed and cut off while findings come in."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.failover import Failover, troubled
from tests.postgres import REASON, Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.skipif(bool(REASON), reason=REASON)]

P99_SECONDS = 5.0
"""From a finding to its order, while judges die."""


def test_while_judges_die_nothing_is_lost_and_nothing_is_done_twice(tmp_path: Path) -> None:
    with Cluster(synced=True) as cluster:
        failover = Failover(tmp_path, cluster, agents=20)
        outcome = asyncio.run(troubled(failover, troubles=5, every_s=4.0, per_second=20.0))
    print(  # noqa: T201 - the figure is asked for
        f"{outcome.findings} findings, {outcome.kills} kills, {outcome.cuts} cuts, {outcome.terms} terms: finding to "
        f"order p50 {outcome.latency_s(0.5):.2f} s, p99 {outcome.latency_s(0.99):.2f} s, most {outcome.latency_s(1):.1f} s"
    )
    assert outcome.wrong == (), failover.logs()
    assert (outcome.kills, outcome.cuts) == (3, 2)
    assert outcome.terms >= 6
    assert len(outcome.latencies_s) == outcome.findings
    assert outcome.latency_s(0.99) < P99_SECONDS
