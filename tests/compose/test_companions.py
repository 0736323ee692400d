"""What runs beside the agent's loops, wired as in production."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetd.agent.memory import TIMES, YOUNG_S, MemoryConfig
from fleetd.cli.agent import command
from fleetd.compose.agent import build_agent
from fleetd.compose.companions import MemoryCollector, build_companions
from fleetd.config.files import AgentConfig
from fleetd.devices.config import DevicesConfig
from fleetd.exporter.config import AgentExporterConfig
from fleetd.exporter.page import Page
from fleetd.model.ids import HostName
from fleetd.sim.gpu import SimDevices
from fleetd.system import RealClock, Systemd
from fleetd.uplink.config import UplinkConfig
from tests.agent.fakes_agent import FakeClock


def test_s36_the_agent_reads_its_own_memory_and_asks_to_be_restarted(tmp_path: Path) -> None:
    clock, restarts = FakeClock(), []
    config = AgentConfig(
        state_dir=tmp_path,
        uplink=UplinkConfig(address="127.0.0.1:9", insecure=True),
        memory=MemoryConfig(limit_bytes=64 << 20),
    )
    companions = build_companions(
        config,
        SimDevices(host=HostName("h1"), gpus=1, seed=0, clock=clock),
        clock=clock,
        inventory=tuple,
        restart=lambda: restarts.append(1),
    )
    ballast = bytearray(64 << 20)
    ballast[::4096] = b"x" * len(ballast[::4096])  # every page of it is touched
    clock.now_s += YOUNG_S
    for _ in range(TIMES):
        companions.memory.look()
    assert restarts == [1]
    assert companions.memory.resident_bytes["agent"] > len(ballast)
    assert 'fleetd_agent_resident_bytes{process="helper"} 0.0\n' in Page([MemoryCollector(companions.memory)]).text()
    assert set(companions.loops) == {"jobs", "memory"}
    asyncio.run(companions.jobs.look())
    assert companions.jobs.jobs() == (), "a simulated GPU has no processes, and this machine no kubelet"


@pytest.mark.parametrize(
    ("in_file", "option", "served"), [(None, None, False), (None, "dcgm", True), ("dcgm", None, True)]
)
def test_compat_is_asked_for_in_the_file_or_on_the_command_line(
    tmp_path: Path, in_file: str | None, option: str | None, served: bool
) -> None:
    config = AgentConfig(
        state_dir=tmp_path,
        uplink=UplinkConfig(address="127.0.0.1:9", insecure=True),
        devices=DevicesConfig(backend="sim", gpus=2),
        exporter=AgentExporterConfig(compat=in_file),
    )

    async def story() -> str:
        built = build_agent(
            config, tmp_path / "agent.yaml", RealClock(), Systemd({}), restart=lambda: None, compat=option
        )
        try:
            await built.agent._sampler.sample_once()
            return Page(built.collectors).text()
        finally:
            built.spool.close()
            built.orders.close()

    text = asyncio.run(story())
    assert "fleetd_gpu_power_watts{" in text
    assert ("DCGM_FI_DEV_POWER_USAGE{" in text) == served


def test_compat_with_something_else_is_a_usage_error() -> None:
    result = CliRunner().invoke(command, ["--config", "agent.yaml", "--compat", "rdc"])
    assert result.exit_code == 2
    assert "'rdc' is not 'dcgm'" in result.output
