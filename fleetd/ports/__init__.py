"""What the world must offer: the protocols behind which every adapter stands, and the errors they may raise.

An adapter raises the `PortError` named in its method's docstring and nothing else for an operating failure; a loop
catches exactly that, counts it, backs off and goes on. Anything else is a bug and ends the process.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleetd.model.finding import Finding
from fleetd.model.host import Gpu, Hello
from fleetd.model.ids import GpuId, HostName, OrderId, SpoolId
from fleetd.model.logline import Cursor, LogHealth, LogLine
from fleetd.model.order import AgentOrder, RecallBurnin, RunBurnin
from fleetd.model.power_lease import Answer, Ask
from fleetd.model.telemetry import GpuSample, Telemetry
from fleetd.ports.desk import AlertsTaken as AlertsTaken
from fleetd.ports.desk import DeskDoor as DeskDoor
from fleetd.ports.desk import Peer as Peer
from fleetd.ports.desk import Refused as Refused
from fleetd.ports.desk import Unknown as Unknown
from fleetd.ports.identity import Attempt as Attempt
from fleetd.ports.identity import Certificates as Certificates
from fleetd.ports.identity import IdentityDoor as IdentityDoor
from fleetd.ports.identity import Request as Request
from fleetd.ports.identity import Signer as Signer
from fleetd.ports.identity import Token as Token
from fleetd.ports.identity import TokenBook as TokenBook
from fleetd.ports.identity import TokenRecord as TokenRecord
from fleetd.ports.identity import Validity as Validity
from fleetd.ports.scheduler import Actuator as Actuator
from fleetd.ports.scheduler import JobEnds as JobEnds
from fleetd.ports.scheduler import Receipt as Receipt
from fleetd.ports.scheduler import Standing as Standing
from fleetd.ports.store import Claim as Claim
from fleetd.ports.store import Seat as Seat
from fleetd.ports.store import Store as Store
from fleetd.ports.view import FleetView as FleetView

# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# PortError
# ├── DeviceError        the vendor library or a GPU does not answer, or answers nonsense
# │   ├── DriverMissing      there is no driver or vendor library to ask
# │   └── DevicesReleased    the agent has let go of the GPUs, because it was asked to
# ├── BurnerError        a burn-in could not be started, or left no report
# ├── UplinkError        no connection to the controller, or it refused
# ├── StoreError         the disk or the database refused
# │   ├── OtherSchema        a ledger of another version of fleetd: nothing is wrong with it
# │   └── NotJudge           another controller judges on this ledger: it is to be asked
# └── ActuatorError      the scheduler refused or could not be reached
#     └── ActuatorObjection  it was reached, and somebody has to change something before the order can be carried out
#         └── NoNode         it has no node of the host


class PortError(Exception):
    """An operating failure of something outside the process; the message is one line for an operator."""


class DeviceError(PortError):
    """The vendor library or a GPU does not answer, or answers nonsense."""


class DriverMissing(DeviceError):  # noqa: N818 - it says what is missing
    """There is no driver or vendor library to ask: somebody has to install or load one, no GPU is suspected."""


class DevicesReleased(DeviceError):  # noqa: N818 - it says what happened
    """The agent let go of the GPUs because it was asked to: none is silent, none was asked."""


class BurnerError(PortError):
    """A burn-in could not be started, or left no report."""


class UplinkError(PortError):
    """No connection to the controller, or it refused."""


class StoreError(PortError):
    """The disk or the database refused."""


class OtherSchema(StoreError):  # noqa: N818 - it says what it is
    """A ledger that another version of fleetd wrote: nothing is wrong with it, and this version cannot read it."""


class NotJudge(StoreError):  # noqa: N818 - it says what it is
    """This controller stands by: another one judges on the ledger, or may. Nothing was done; ask the others."""


class ActuatorError(PortError):
    """The scheduler refused or could not be reached."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        """`retry_after_s`: before which it does not want to be asked again; None: it does not say."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ActuatorObjection(ActuatorError):  # noqa: N818 - it is an answer, not an accident
    """The scheduler was reached, and as things are the order cannot be carried out: a person has to be told.

    The message says what stands in the way (somebody else's drain, a node that it does not know) and what to do.
    """


class NoNode(ActuatorObjection):
    """The scheduler has no node that is this host's alone: there is none of its name, or another host claims it."""


# ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Clock(Protocol):
    """Both clocks and the only way to wait."""

    def wall_s(self) -> float:
        """Seconds since the epoch, for records (`at_s`); may jump."""

    def elapsed_s(self) -> float:
        """Monotonic seconds, for durations; never goes back."""

    async def sleep_s(self, seconds: float) -> None:
        """Wait; cancellable."""


# ── agent side ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Devices(Protocol):
    """The GPUs of this host, of one vendor or simulated. Every call has a deadline inside the adapter."""

    async def inventory(self) -> tuple[Gpu, ...]:
        """The GPUs that are there now. Raises DeviceError."""

    async def sample(self) -> tuple[GpuSample, ...]:
        """One sample of each GPU that answered. Raises DeviceError when none could be asked."""

    @property
    def troubles(self) -> Mapping[GpuId, str]:
        """Why a GPU was missing in the last `sample()`: asked in vain, left alone, or gone; else it was not asked."""

    async def close(self) -> str:
        """Release all handles until the next call; idempotent. Returns "", or which process of ours holds a GPU."""


class KernelLog(Protocol):
    """The kernel's log, followed across restarts of this process."""

    def lines(self) -> AsyncIterator[LogLine]:
        """Yield lines for ever, oldest first and from the kept cursor on; trouble of the source ends it never."""

    def commit(self, cursor: Cursor) -> None:
        """Keep durably that everything up to here has been dealt with. Raises StoreError."""

    @property
    def health(self) -> LogHealth:
        """Whether the log is being read, and what of it was not."""


class Burner(Protocol):
    """Runs a burn-in in a process of its own and keeps its report on disk."""

    async def burn(self, order: RunBurnin, report: Path) -> None:
        """Run `order.level` and leave the JSON report at `report` (complete or absent, never half-written).

        Returns when the report is there, whatever its verdict. Raises BurnerError when no report could be had.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """A finding with its place in the spool."""

    seq: int
    finding: Finding


class Spool(Protocol):
    """Durable queue of findings on the host: appended before anything else happens, dropped after the ack."""

    @property
    def id(self) -> SpoolId:
        """Identity of this spool; sequence numbers count within it."""

    def append(self, finding: Finding) -> int:
        """Write durably; the same finding id twice gives the first sequence number again. Raises StoreError."""

    def pending(self, *, after_seq: int, limit: int) -> tuple[Spooled, ...]:
        """Unacknowledged findings with a sequence number above `after_seq`, oldest first. Raises StoreError."""

    def acknowledge(self, seq: int) -> None:
        """Forget everything up to and including `seq`. Raises StoreError."""

    async def wait(self, *, after_seq: int) -> None:
        """Return as soon as something is pending after `after_seq`."""


class Orders(Protocol):
    """Where the agent keeps the orders that it accepted, so that a restart forgets none and repeats none."""

    def accept(self, order: RunBurnin) -> bool:
        """Write durably; False when this order id was accepted before. Raises StoreError."""

    def open(self) -> tuple[RunBurnin, ...]:
        """Accepted orders that have not been closed, oldest first. Raises StoreError."""

    def close_order(self, order_id: OrderId) -> None:
        """Mark as done; idempotent. Raises StoreError."""


class PowerLine(Protocol):
    """The host's end of its lease of a power budget."""

    async def next_ask(self) -> Ask:
        """The next question, as soon as one is due. It counts from now on: it is to be sent at once."""

    def answered(self, answer: Answer) -> None:
        """Take an answer; older ones, and those to others, are ignored."""


class Uplink(Protocol):
    """The agent's line to the controller: one stream, reconnected for ever with bounded back-off."""

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
        """Serve until cancelled.

        On every connection: send `hello()`, resend everything unacknowledged in order, send `telemetry()` at the
        configured interval (latest wins), call `accept(order)` for each order and confirm it to the controller after
        the call returned (so the agent has it on disk); `accept` returns "" or the reason why it refuses the order.
        `recall` is told of each burn-in that the controller takes back. `power` asks for leases of power budgets; None:
        this host takes part in none.
        """

    @property
    def connected(self) -> bool:
        """Whether the controller has answered the hello of the current connection."""


# ── controller side ─────────────────────────────────────────────────────────────────────────────────────────────────


class AgentDoor(Protocol):
    """What the controller offers to the transport that agents come in by.

    Every method raises NotJudge while another controller is the judge: the stream ends, and the agent asks the others.
    """

    async def hello(self, peer: Peer, hello: Hello, spool: SpoolId) -> int:
        """Register the connection; returns the last sequence number stored for this spool (0: none).

        Raises Refused when the peer may not speak for `hello.host`.
        """

    async def finding(self, host: HostName, spool: SpoolId, seq: int, finding: Finding) -> int:
        """Store and judge durably; returns the highest sequence number that may be acknowledged.

        Raises StoreError (the stream is then closed and the agent resends), Refused on a finding for another host.
        """

    async def telemetry_received(self, host: HostName, telemetry: Telemetry) -> None:
        """Keep the latest telemetry; waits for nothing. Raises NotJudge (the stream is then closed)."""

    async def power_asked(self, host: HostName, ask: Ask) -> Answer | None:
        """Answer a host's question for power; None: a later question of it has been answered. Raises NotJudge."""

    def orders(self, host: HostName) -> AsyncIterator[AgentOrder]:
        """Orders for this host, those not yet confirmed first; ends when a newer connection of the host takes over."""

    async def order_confirmed(self, host: HostName, order_id: OrderId, refused: str) -> None:
        """The agent has the order on disk (`refused` empty), or refuses it for the reason given. Raises StoreError."""


RunBlocking = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a blocking function off the event loop (`fleetd.system`)."""

Labels = Mapping[str, str]
