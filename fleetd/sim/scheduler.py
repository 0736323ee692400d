"""A simulated scheduler of jobs: carries out fleet orders, slowly and not at the first attempt, each once in effect."""

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import FleetOrder, Quarantine, Release
from fleetd.ports import ActuatorError, Clock, Receipt, Standing
from fleetd.sim.life import Life


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """An order that was carried out."""

    at_s: float
    """Virtual time."""
    order: FleetOrder


class SimScheduler:
    """Outlives every controller."""

    def __init__(self, *, clock: Clock, rng: random.Random, refuse_ratio: float = 0.0) -> None:
        """`refuse_ratio`: how often it cannot be reached."""
        self._clock = clock
        self._rng = rng
        self.refuse_ratio = refuse_ratio
        self.carried: list[Carried] = []
        """What was carried out, in order; each order id once."""
        self._known: set[OrderId] = set()
        self.closed: dict[HostName, OrderId] = {}
        """Hosts on which fleetd lets no new job start, and by which order."""
        self.whys: dict[HostName, str] = {}
        """The reasons of these orders."""

    @property
    def drained(self) -> frozenset[HostName]:
        """Hosts on which fleetd lets no new job start."""
        return frozenset(self.closed)

    def _carry_out(self, order: FleetOrder) -> None:
        self._known.add(order.id)
        self.carried.append(Carried(at_s=self._clock.elapsed_s(), order=order))
        if isinstance(order, Quarantine) and order.host not in self.closed:  # who closed it first is named
            self.closed[order.host], self.whys[order.host] = order.id, order.why
        elif isinstance(order, Release) and not self._stale(order):
            self.closed.pop(order.host, None)
            self.whys.pop(order.host, None)

    def _stale(self, order: Release) -> bool:
        """Whether the host is closed by a later order."""
        closed_by = self.closed.get(order.host)
        return closed_by is not None and _number(closed_by) > _number(order.id)

    def meet_another_ledger(self) -> None:
        """From now on orders come from a ledger that knows nothing of the last one: their ids begin anew.

        What is closed stays so, with the mark of who closed it.
        """
        self._known.clear()
        self.carried.clear()

    def actuator(self, life: Life, on_order: Callable[[FleetOrder], None] = lambda _: None) -> "SimActuator":
        """Return the `Actuator` of one controller process; `on_order` hears of every order carried out."""
        return SimActuator(self, life, on_order)

    async def take(self, order: FleetOrder) -> bool:
        """Carry an order out; False when it was before. Raises ActuatorError when nobody answers."""
        await self._clock.sleep_s(self._rng.uniform(0.01, 0.5))
        if self._rng.random() < self.refuse_ratio:
            raise ActuatorError("the simulated scheduler does not answer")
        if order.id in self._known:
            return False
        self._carry_out(order)
        return True


class SimActuator:
    """The `Actuator` port on the simulated scheduler."""

    name = "sim"

    def __init__(self, scheduler: SimScheduler, life: Life, on_order: Callable[[FleetOrder], None]) -> None:
        self._scheduler = scheduler
        self._life = life
        self._on_order = on_order

    async def carry_out(self, order: FleetOrder) -> Receipt:
        """Carry the order out; the same id again has no further effect. Raises ActuatorError."""
        self._life.boundary(f"before carrying out {order.id}")
        if await self._scheduler.take(order):
            self._on_order(order)
        self._life.boundary(f"after carrying out {order.id}")
        return Receipt(order_id=order.id, done=True, why="done by the simulated scheduler")

    async def standing(self, hosts: Collection[HostName]) -> Mapping[HostName, Standing]:
        """How the simulated scheduler treats these hosts."""
        self._life.boundary("before looking at what stands")
        closed, whys = self._scheduler.closed, self._scheduler.whys
        return {
            host: Standing(closed=host in closed, order_id=closed.get(host), why=whys.get(host, "")) for host in hosts
        }


def _number(order: OrderId) -> int:
    """Which order of its host this is."""
    return int(order.split("/")[1])
