# ruff: noqa: T201 - a bench prints
"""Failover: `python -m tests.bench.bench_failover [--troubles N] [--json PATH]` (12 troubles by default, 90 s).

Three real controllers share a ledger in a PostgreSQL of their own that waits for its disk; 20 agents, each with the
real line and the real spool, have 20 findings a second, and each finding leads to an order. Every 6 s the judge is
killed (`kill -9`, and started again a second later) or, every third time, cut off from the database. Measured is the
time from a finding's way into the spool to its order in the record of the scheduler, which all controllers act on:

- p99 < 5 s;
- no finding is lost or counted twice, no order is given or carried out twice or not at all, the journal is whole.

Exit code 1 when a target is missed, 3 where there is no PostgreSQL. Everything runs on this machine: on fewer than two
free cores the latency is that of the waiting for a core.
"""

import argparse
import asyncio
import json
import logging
import sys
import tempfile
from pathlib import Path

import structlog

from tests.e2e.failover import Failover, Outcome, troubled
from tests.postgres import REASON, Cluster

P99_MAX_S = 5.0
EVERY_S, AGENTS, FINDINGS_PER_S = 6.0, 20, 20.0


def measure(troubles: int) -> Outcome:
    """Have so many troubles."""
    with tempfile.TemporaryDirectory() as folder, Cluster(synced=True) as cluster:
        failover = Failover(Path(folder), cluster, agents=AGENTS)
        return asyncio.run(troubled(failover, troubles=troubles, every_s=EVERY_S, per_second=FINDINGS_PER_S))


def main() -> None:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--troubles", type=int, default=12)
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    asked = parser.parse_args()
    if REASON:
        print(f"bench-failover: {REASON}", file=sys.stderr)
        sys.exit(3)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found = measure(asked.troubles)
    figures = {
        "findings": found.findings,
        "kills": found.kills,
        "cuts": found.cuts,
        "terms": found.terms,
        "p50_s": round(found.latency_s(0.5), 3),
        "p99_s": round(found.latency_s(0.99), 3),
        "max_s": round(found.latency_s(1), 3),
        "wrong": len(found.wrong),
    }
    print(
        f"{found.findings} findings, {found.kills} kills and {found.cuts} cuts of the judge, {found.terms} terms: "
        f"finding to order p50 {figures['p50_s']} s, p99 {figures['p99_s']} s (< {P99_MAX_S:g}), "
        f"max {figures['max_s']} s; lost, twice or damaged: {len(found.wrong)}"
    )
    for line in found.wrong[:20]:
        print(line)
    if asked.json is not None:
        asked.json.write_text(json.dumps(figures) + "\n")
    sys.exit(bool(found.wrong) or found.latency_s(0.99) >= P99_MAX_S)


if __name__ == "__main__":
    main()
