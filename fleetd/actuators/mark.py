"""The mark that fleetd leaves in a scheduler: which order closed a node. By it alone ours is told from others' work.

It is the idempotency key, too: what carries the mark of an order is done, whoever crashed before he could note it.
"""

from dataclasses import dataclass
from typing import Self

from fleetd.model.ids import HostName, OrderId
from fleetd.ports import Standing

_CHECK_PREFIX = "fleetd-check:"
_PREFIX = "fleetd:"
_END = " ~fleetd"
REASON_CHARS_MAX = 240
_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """`HOST/N/quarantine`: N counts the orders of a host, so that of two marks it is known which is the later one."""

    host: HostName
    number: int
    order_id: OrderId
    why: str = ""
    """The reason that stands there with it, as far as it fitted."""

    @classmethod
    def of_id(cls, text: str, why: str = "") -> Self | None:
        """The mark of an order id; None for a text that is none, or has a number that no fleetd ever gives."""
        host, _, rest = text.partition("/")
        number, _, kind = rest.partition("/")
        if not host or kind != "quarantine" or not (number.isascii() and number.isdigit()) or len(number) > _DIGITS_MAX:
            return None
        return cls(host=HostName(host), number=int(number), order_id=OrderId(text), why=why)

    @classmethod
    def of_reason(cls, reason: str) -> Self | None:
        """The mark in a scheduler's reason, if it is ours as we wrote it.

        One that somebody has added to or cut is his: he had a reason of his own.
        """
        if not reason.startswith(_PREFIX) or not reason.endswith(_END):
            return None
        order_id, _, why = reason.removeprefix(_PREFIX).removesuffix(_END).partition(": ")
        return cls.of_id(order_id, why)


def standing_by(mark: Mark | None, host: HostName, *, closed: bool) -> Standing:
    """How a host stands whose node is closed by this mark; `closed` says how without one."""
    if mark is None:
        return Standing(closed=closed, order_id=None)
    if mark.host != host:
        return Standing(closed=True, order_id=None, why=mark.why, other=mark.order_id)
    return Standing(closed=True, order_id=mark.order_id, why=mark.why)


def by_health_check(reason: str) -> bool:
    """Whether the host's own health check (deploy/slurm) closed the node: that gives way to the controller's order."""
    return reason.startswith(_CHECK_PREFIX) and reason.endswith(_END)


def number_of(order_id: OrderId) -> int:
    """Which order of its host this is. Raises ValueError for an id that is not `HOST/N/KIND`."""
    return int(order_id.split("/")[1])


def reason_of(order_id: OrderId, why: str) -> str:
    """The text that marks a node: `fleetd:HOST/N/quarantine: WHY ~fleetd`, on one line and bounded.

    No brackets: Slurm adds who and when in them.
    """
    flat = " ".join(why.split()).translate(str.maketrans("[]", "()"))
    printable = "".join(c for c in flat if c.isprintable())
    room = REASON_CHARS_MAX - len(_PREFIX) - len(order_id) - 2 - len(_END)
    cut = printable if len(printable) <= room else printable[: max(room - 1, 0)] + "…"
    return f"{_PREFIX}{order_id}: {cut}{_END}"
