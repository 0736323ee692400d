"""The `Uplink` port over gRPC: one stream to the controller that judges, reconnected for ever with bounded back-off.

Always true: findings are sent in the order of the spool, a bounded number of them unacknowledged, and forgotten only
after the controller has acknowledged them; an order is confirmed only after the agent has it on disk.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import grpc
import structlog

from fleetd.model.host import Hello
from fleetd.model.order import RecallBurnin, RunBurnin
from fleetd.model.telemetry import GpuSample
from fleetd.pb.v1.agent_pb2_grpc import AgentLinkStub
from fleetd.ports import Clock, PortError, PowerLine, Refused, Spool, UplinkError
from fleetd.uplink.channel import StandsByError, failure, open_channel
from fleetd.uplink.config import UplinkConfig
from fleetd.uplink.stream import Agent, AgentStream, DrainedError
from fleetd.uplink.wire import MAX_MESSAGE_BYTES, clean

_log = structlog.get_logger(__name__)

_DRAIN_MAX_S = 300.0
"""Longest wait that a controller may ask for."""


class GrpcUplink:
    """The agent's line to the controller."""

    def __init__(self, config: UplinkConfig, *, clock: Clock, rng: random.Random) -> None:
        """Make the line; nothing is opened before `run`.

        Args:
            config: where the controller is and how patient to be.
            clock: waits between attempts and between telemetry.
            rng: jitter, so that a fleet does not come back all at once.
        """
        self._config = config
        self._clock = clock
        self._rng = rng
        self._connected = False
        self._address = config.addresses[0]
        self.connects_total = 0
        """Connections that the controller welcomed."""
        self.failures_total = 0
        """Attempts and connections that ended in an error."""
        self.unsendable_total = 0
        """Findings and readings of ours that the protocol cannot carry: a bug, logged each time."""
        self.last_error = ""
        """Why the last connection ended; empty before the first end."""

    @property
    def connected(self) -> bool:
        """Whether the controller has answered the hello of the current connection."""
        return self._connected

    async def run(
        self,
        *,
        hello: Callable[[], Hello],
        spool: Spool,
        telemetry: Callable[[], tuple[GpuSample, ...]],
        accept: Callable[[RunBurnin], Awaitable[str]],
        recall: Callable[[RecallBurnin], None],
        power: PowerLine | None = None,
    ) -> None:
        """Serve until cancelled; see the port."""
        agent = Agent(
            hello=hello,
            spool=spool,
            telemetry=telemetry,
            accept=accept,
            recall=recall,
            power=power,
            on_welcome=self._welcomed,
            on_unsendable=self._unsendable,
        )
        addresses, at = self._config.addresses, 0
        failures = 0  # in a row; a round is one at each address
        while True:
            address = self._address = addresses[at % len(addresses)]
            connects, began_s = self.connects_total, self._clock.elapsed_s()
            try:
                await self._connect(agent, replace(self._config, address=address), address)
            except Refused as refused:
                wait_s = self._jitter(self._config.refused_seconds)
                self._failed(str(refused))
                _log.error("uplink_refused", controller=address, why=str(refused), retry_seconds=wait_s)
            except DrainedError as drained:
                failures = 0
                wait_s = self._jitter(min(max(drained.retry_after_s, 0.0), _DRAIN_MAX_S))
                self.last_error = str(drained)
                _log.info("uplink_drained", controller=address, why=str(drained), retry_seconds=wait_s)
            except PortError as error:
                lasted_s = self._clock.elapsed_s() - began_s
                held = self.connects_total > connects and lasted_s >= self._held_s
                failures = 1 if held else failures + 1
                rounds = failures // len(addresses)
                wait_s = 0.0 if failures % len(addresses) else self._backoff_s(rounds)
                self._failed(str(error))
                log = _log.info if isinstance(error, StandsByError) else _log.warning
                log("uplink_lost", controller=address, why=str(error), retry_seconds=wait_s)
            finally:
                self._connected = False
            at += 1
            await self._clock.sleep_s(wait_s)

    @property
    def _held_s(self) -> float:
        """How long a connection must last to count as a recovery.

        One that breaks at once is as bad as none: else a fleet would come back without any pause. One that held for a
        while, and ended with its controller, is no reason to wait long before the next controller is asked.
        """
        return min(self._config.retry_max_seconds, 4.0 * self._config.retry_first_seconds)

    async def _connect(self, agent: Agent, config: UplinkConfig, address: str) -> None:
        """Serve one connection. Ends by raising PortError or Refused, or by being cancelled."""
        channel = open_channel(address, config.tls, receive_max_bytes=MAX_MESSAGE_BYTES)
        try:
            await AgentStream(AgentLinkStub(channel).Connect(None), agent, config=config, clock=self._clock).run()
        except grpc.aio.AioRpcError as error:
            raise failure(error, address, secure=not config.insecure) from error
        except grpc.aio.BaseError as error:
            raise UplinkError(f"the stream to {address} broke: {clean(str(error))}") from error
        finally:
            await channel.close(None)

    def _welcomed(self) -> None:
        self.connects_total += 1
        self._connected = True
        _log.info("uplink_connected", controller=self._address)

    def _unsendable(self, what: str) -> None:
        self.unsendable_total += 1
        _log.error("unsendable", what=what)

    def _failed(self, why: str) -> None:
        self.failures_total += 1
        self.last_error = why

    def _jitter(self, seconds: float) -> float:
        return seconds * self._rng.uniform(0.5, 1.0)

    def _backoff_s(self, failures: int) -> float:
        doublings = min(failures - 1, 30)  # beyond this only the maximum counts
        return self._jitter(min(self._config.retry_max_seconds, self._config.retry_first_seconds * 2**doublings))
