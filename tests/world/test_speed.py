"""Worlds are fast enough to run thousands of simulated hours in the tests."""

import time

from tests.world.fakes_world import fleet

CPU_SECONDS_MAX = 10.0


def test_128_hosts_live_an_hour_within_ten_seconds_of_one_core() -> None:
    world = fleet(hosts=128, gpus=8, sample_seconds=10.0)
    began_s = time.process_time()
    outcome = world.run(seconds=3600.0)
    assert time.process_time() - began_s < CPU_SECONDS_MAX
    assert len(outcome.hosts) == 128
