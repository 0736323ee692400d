"""Chores: what the controller orders from this host. Accepted on disk first, carried out one at a time, told once.

The order of things is the guarantee: order on disk → burn-in → report on disk → finding in the spool → order closed.
Killed between any two of them, the agent goes on from there when it is started again.
"""

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path

import structlog

from fleetd.agent.report import REPORT_BYTES_MAX, ReportError, judged, not_judged
from fleetd.model.finding import BurninEnded, Verdict
from fleetd.model.ids import BootId, HostName, OrderId
from fleetd.model.order import RecallBurnin, RunBurnin
from fleetd.ports import Burner, BurnerError, Clock, Orders, Spool, StoreError

_log = structlog.get_logger(__name__)

_ORDER_ID_CHARS_MAX = 200
"""The finding's id is made of it, and must fit the wire."""
_RETRY_FIRST_S = 1.0
_RETRY_MAX_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoresConfig:
    """What is kept of the burn-ins."""

    waiting_max: int = 4
    """Orders that may wait; one more is refused, and the controller may order again."""
    reports_kept: int = 20
    """Reports that stay on disk for people to read; the oldest go first."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        for name in ("waiting_max", "reports_kept"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")


class Chores:
    """Accepts orders and carries them out until cancelled."""

    def __init__(
        self,
        *,
        host: HostName,
        boot_id: BootId,
        orders: Orders,
        burner: Burner,
        spool: Spool,
        clock: Clock,
        reports: Path,
        config: ChoresConfig,
    ) -> None:
        """`reports` is the folder for the reports; the burner makes it."""
        self._host = host
        self._boot_id = boot_id
        self._orders = orders
        self._burner = burner
        self._spool = spool
        self._clock = clock
        self._reports = reports
        self._config = config
        self._accepted = asyncio.Event()
        self._untold: BurninEnded | None = None
        """A finding that the spool did not take, or whose order did not close: nothing is run again for that."""
        self._running: tuple[OrderId, asyncio.Task[None]] | None = None
        self._recalled: dict[OrderId, str] = {}  # why; bounded by the orders that are open
        self.runs_total = {verdict.value: 0 for verdict in Verdict}
        self.findings_total = 0
        self.burner_errors_total = 0
        self.report_errors_total = 0
        self.store_errors_total = 0
        self.refused_total = 0

    async def accept(self, order: RunBurnin) -> str:
        """Take an order: "" once it is on disk, also when it was there before; else why it is refused."""
        try:
            why = self._refusal(order)
            if not why and self._orders.accept(order):
                _log.info("order_accepted", order=order.id, level=order.level, why=order.why)
        except StoreError as error:
            self.store_errors_total += 1
            why = f"the order cannot be written to this host's disk: {error}"
        if why:
            self.refused_total += 1
            _log.warning("order_refused", order=order.id, why=why)
        self._accepted.set()
        return why

    def recall(self, recall: RecallBurnin) -> None:
        """Stop a burn-in, or do not begin it: it ends without a judgement. One that has ended, or is unknown, stays."""
        try:
            waiting = any(order.id == recall.order_id for order in self._orders.open())
        except StoreError as error:
            self.store_errors_total += 1
            _log.warning("recall_not_done", order=recall.order_id, why=str(error))
            return
        if not waiting or recall.order_id in self._recalled:
            return
        self._recalled[recall.order_id] = recall.why
        _log.warning("burnin_recalled", order=recall.order_id, why=recall.why)
        if self._running is not None and self._running[0] == recall.order_id:
            self._running[1].cancel()

    async def run(self) -> None:
        """Carry out what is on disk, then wait for more; until cancelled."""
        wait_s = _RETRY_FIRST_S
        while True:
            self._accepted.clear()
            try:
                waiting = self._orders.open()
                if waiting:
                    await self._carry_out(waiting[0])
                wait_s = _RETRY_FIRST_S
            except StoreError as error:
                self.store_errors_total += 1
                _log.error("chores_wait_for_the_disk", why=str(error), retry_s=wait_s)
                await self._clock.sleep_s(wait_s)
                wait_s = min(2.0 * wait_s, _RETRY_MAX_S)
                continue
            if not waiting:
                await self._accepted.wait()

    def _refusal(self, order: RunBurnin) -> str:
        waiting = self._orders.open()
        if any(known.id == order.id for known in waiting):
            return ""  # sent again because our confirmation was lost
        if why := self._invalid(order):
            return why
        if len(order.id) > _ORDER_ID_CHARS_MAX:
            return f"the order's id has more than {_ORDER_ID_CHARS_MAX} characters"
        if len(waiting) >= self._config.waiting_max:
            return f"{len(waiting)} burn-ins are waiting on this host already"
        return ""

    def _invalid(self, order: RunBurnin) -> str:
        """Why this order must not begin on this host now; "" if it may."""
        if order.host != self._host:
            return f"the order is for host {order.host}, this is {self._host}"
        if order.boot_id != self._boot_id:
            return f"the order is for boot {order.boot_id}, this is boot {self._boot_id}"
        late_s = self._clock.wall_s() - order.not_after_s
        return f"the order ran out {late_s:.0f} s ago" if late_s > 0 else ""

    async def _carry_out(self, order: RunBurnin) -> None:
        """One order from wherever it stands to its end. Raises StoreError."""
        if self._untold is None or self._untold.order_id != order.id:
            self._untold = await self._burn(order)
        finding = self._untold
        self._spool.append(finding)
        self._orders.close_order(order.id)
        self._untold = None
        self._recalled.pop(order.id, None)
        self.findings_total += 1
        self.runs_total[finding.verdict] += 1
        _log.info("burnin_ended", order=order.id, level=order.level, verdict=finding.verdict, why=finding.why)
        self._prune()

    async def _burn(self, order: RunBurnin) -> BurninEnded:
        report = self._reports / f"{hashlib.sha256(order.id.encode()).hexdigest()[:32]}.json"
        if (finding := self._judged(order, report)) is not None:
            return finding  # from before a restart
        # It was valid when it was accepted, but the agent or the host may have been restarted since.
        if why := self._invalid(order):
            return self._not_judged(order, f"the burn-in did not run to its end before a restart, and now {why}")
        if order.id in self._recalled:
            return self._not_judged(order, f"recalled before it began: {self._recalled[order.id]}")
        _log.info("burnin_begins", order=order.id, level=order.level, why=order.why)
        burning = asyncio.create_task(self._run_it(order, report))
        self._running = (order.id, burning)
        try:
            await asyncio.wait({burning})
        finally:
            self._running = None
            burning.cancel()  # when we are cancelled ourselves, so is the run, and it is ended before we go
            await asyncio.wait({burning})
        if burning.cancelled():
            return self._not_judged(order, f"recalled: {self._recalled[order.id]}")
        try:
            burning.result()
        except BurnerError as error:
            self.burner_errors_total += 1
            return self._not_judged(order, str(error))
        return self._judged(order, report) or self._not_judged(order, f"the burn-in's report is gone: {report}")

    async def _run_it(self, order: RunBurnin, report: Path) -> None:
        await self._burner.burn(order, report)

    def _judged(self, order: RunBurnin, report: Path) -> BurninEnded | None:
        """The finding that the report on disk gives; None when there is no report."""
        try:
            content = _read(report)
            return None if content is None else judged(order, content, at_s=self._clock.wall_s())
        except ReportError as error:
            self.report_errors_total += 1
            return self._not_judged(order, f"{error} ({report})")

    def _not_judged(self, order: RunBurnin, why: str) -> BurninEnded:
        return not_judged(order, why, at_s=self._clock.wall_s())

    def _prune(self) -> None:
        try:
            reports = sorted(self._reports.glob("*.json"), key=lambda path: path.stat().st_mtime)
            # Orders are carried out one after the other: what an ended one noted is of no use to the next.
            for old in (*reports[: -self._config.reports_kept], *self._reports.glob("*.resume")):
                old.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("old_reports_stay", why=str(error))


def _read(report: Path) -> bytes | None:
    """The report's bytes; None when it is not there. Raises ReportError."""
    try:
        with report.open("rb") as file:
            content = file.read(REPORT_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReportError(f"the report is unreadable: {error.strerror}") from error
    if len(content) > REPORT_BYTES_MAX:
        raise ReportError(f"the report has more than {REPORT_BYTES_MAX} bytes")
    return content
