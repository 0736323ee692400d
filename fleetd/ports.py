"""What the world must offer: the protocols behind which every adapter stands, and the errors they may raise.

An adapter raises the `PortError` named in its method's docstring and nothing else for an operating failure; a loop
catches exactly that, counts it, backs off and goes on. Anything else is a bug and ends the process.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleetd.model.finding import Finding
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Gpu, Hello, Host
from fleetd.model.ids import FindingId, GpuId, HostName, OrderId, SpoolId
from fleetd.model.job import EndedJob
from fleetd.model.journal import JournalEntry, OrderRecord, StoreImage
from fleetd.model.logline import Cursor, LogHealth, LogLine
from fleetd.model.order import FleetOrder, RunBurnin
from fleetd.model.telemetry import GpuSample

# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# PortError
# ├── DeviceError        the vendor library or a GPU does not answer, or answers nonsense
# │   ├── DriverMissing      there is no driver or vendor library to ask
# │   └── DevicesReleased    the agent has let go of the GPUs, because it was asked to
# ├── BurnerError        a burn-in could not be started, or left no report
# ├── UplinkError        no connection to the controller, or it refused
# ├── StoreError         the disk or the database refused
# └── ActuatorError      the scheduler refused or could not be reached
#     └── ActuatorObjection  it was reached, and somebody has to change something before the order can be carried out


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


class Uplink(Protocol):
    """The agent's line to the controller: one stream, reconnected for ever with bounded back-off."""

    async def run(
        self,
        *,
        hello: Callable[[], Hello],
        spool: Spool,
        telemetry: Callable[[], tuple[GpuSample, ...]],
        accept: Callable[[RunBurnin], Awaitable[str]],
    ) -> None:
        """Serve until cancelled.

        On every connection: send `hello()`, resend everything unacknowledged in order, send `telemetry()` at the
        configured interval (latest wins), call `accept(order)` for each order and confirm it to the controller after
        the call returned (so the agent has it on disk); `accept` returns "" or the reason why it refuses the order.
        """

    @property
    def connected(self) -> bool:
        """Whether the controller has answered the hello of the current connection."""


# ── controller side ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who is on the other end of a connection, from its certificate (or what it says, in insecure mode)."""

    name: str
    role: str
    """`agent`, `operator` or `viewer`."""


class Refused(Exception):  # noqa: N818 - it is an answer, not an accident
    """The controller says no to a peer; the message says why and what to do."""


class AgentDoor(Protocol):
    """What the controller offers to the transport that agents come in by."""

    async def hello(self, peer: Peer, hello: Hello, spool: SpoolId) -> int:
        """Register the connection; returns the last sequence number stored for this spool (0: none).

        Raises Refused when the peer may not speak for `hello.host`.
        """

    async def finding(self, host: HostName, spool: SpoolId, seq: int, finding: Finding) -> int:
        """Store and judge durably; returns the highest sequence number that may be acknowledged.

        Raises StoreError (the stream is then closed and the agent resends), Refused on a finding for another host.
        """

    async def telemetry_received(self, host: HostName, samples: Sequence[GpuSample]) -> None:
        """Keep the latest samples; never fails."""

    def orders(self, host: HostName) -> AsyncIterator[RunBurnin]:
        """Orders for this host, those not yet confirmed first; ends when a newer connection of the host takes over."""

    async def order_confirmed(self, host: HostName, order_id: OrderId, refused: str) -> None:
        """The agent has the order on disk (`refused` empty), or refuses it for the reason given. Raises StoreError."""


class DeskDoor(Protocol):
    """What the controller offers to operators, whatever the transport. Names are host names."""

    async def hosts(self) -> tuple[Host, ...]:
        """All hosts, by name."""

    async def host(self, name: HostName) -> tuple[Host, tuple[GpuSample, ...], tuple[Finding, ...]]:
        """One host with its latest samples and newest findings (at most 100, newest first). Raises Refused."""

    async def quarantine(self, peer: Peer, name: HostName, reason: str, *, expires_at_s: float | None = None) -> Host:
        """Put an operator's hold on the host, for good or until a wall time. Raises Refused, StoreError."""

    async def release(self, peer: Peer, name: HostName, reason: str, *, override: bool) -> Host:
        """Lift the holds; without the proof that each asks for only with `override`. Raises Refused, StoreError."""

    async def burnin(self, peer: Peer, name: HostName, reason: str, *, level: str | None) -> Host:
        """Run a burn-in; None: the level that makes the host healthy or releasable. Raises Refused, StoreError."""

    async def repair(self, peer: Peer, name: HostName, reason: str) -> Host:
        """Leave the host to a person until he orders a burn-in. Raises Refused, StoreError."""

    async def retire(self, peer: Peer, name: HostName, reason: str) -> Host:
        """Take the host out of the fleet for good. Raises Refused, StoreError."""

    async def fleet(self) -> FleetRecord:
        """Tripped budgets, the kill switch, open incidents."""

    async def rearm_budget(self, peer: Peer, reason: str) -> FleetRecord:
        """Let automatic quarantines through again after budgets tripped. Raises Refused, StoreError."""

    async def stop_automation(self, peer: Peer, reason: str) -> FleetRecord:
        """Stop every automatic action at once. Raises Refused, StoreError."""

    async def resume_automation(self, peer: Peer, reason: str) -> FleetRecord:
        """Take the kill switch back. Raises Refused, StoreError."""

    async def close_incident(self, peer: Peer, incident: str, reason: str, *, acquit: bool) -> FleetRecord:
        """Close an incident; its hosts are acquitted, or judged as they are. Raises Refused, StoreError."""

    async def explain(self, name: HostName) -> tuple[tuple[float, str], ...]:
        """Why the host is where it is: (wall time, sentence) a step, oldest first. Raises Refused, StoreError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an actuator says after an attempt at an order that did not fail."""

    order_id: OrderId
    done: bool
    """False: it is under way (jobs are leaving), and has to be looked at again."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a scheduler treats a host at this moment."""

    closed: bool
    """Whether it lets no new work start there, by whosever hand."""
    order_id: OrderId | None
    """The order of fleetd that closed it; None: none did."""


class Actuator(Protocol):
    """Carries out fleet orders on something that schedules jobs."""

    @property
    def name(self) -> str:
        """Key of the actuator in the configuration and in metrics."""

    async def carry_out(self, order: FleetOrder) -> Receipt:
        """Carry the order out; the same order id again has no further effect. Raises ActuatorError (retried)."""

    async def standing(self, hosts: Collection[HostName]) -> Mapping[HostName, Standing]:
        """How these hosts (all that are not retired) stand; one that is left out is not known. Raises ActuatorError."""


class JobEnds(Protocol):
    """Where the ends of jobs are heard of: the scheduler."""

    async def ended(self, hosts: Collection[HostName]) -> tuple[EndedJob, ...]:
        """Ends on these hosts since a while; the same one may be told again. Raises ActuatorError."""


RunBlocking = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a blocking function off the event loop (`fleetd.system`)."""

Labels = Mapping[str, str]


class Store(Protocol):
    """The controller's ledger. All methods block; the controller calls them off the event loop."""

    def load(self) -> StoreImage:
        """Read the image that a controller starts from. Raises StoreError."""

    def commit(self, entries: Sequence[JournalEntry]) -> None:
        """Write the entries durably in one transaction: journal, hosts, findings, spool progress, open orders.

        All or nothing. Raises StoreError.
        """

    def finding_known(self, finding: FindingId) -> bool:
        """Whether a finding with this id was ever committed. Raises StoreError."""

    def finish_order(self, order: OrderId, result: str) -> None:
        """Mark an order as carried out; idempotent. Raises StoreError."""

    def journal(self, *, after: int, limit: int) -> tuple[tuple[int, JournalEntry], ...]:
        """The entries of the whole fleet after a position (0: from the first), in order. Raises StoreError."""

    def history(self, host: HostName, *, limit: int) -> tuple[JournalEntry, ...]:
        """The newest entries of one host, oldest first. Raises StoreError."""

    def findings(self, host: HostName, *, limit: int) -> tuple[Finding, ...]:
        """The newest findings of one host, newest first. Raises StoreError."""

    def orders(self, host: HostName, *, limit: int) -> tuple[OrderRecord, ...]:
        """The newest orders of one host, oldest first. Raises StoreError."""

    def close(self) -> None:
        """Close the ledger; idempotent."""
