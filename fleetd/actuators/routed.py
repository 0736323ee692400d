"""Sends each order where it belongs: pages to who is to be told, the rest to the scheduler."""

from collections.abc import Collection, Mapping

from fleetd.model.ids import HostName
from fleetd.model.order import FleetOrder, Notify
from fleetd.ports import Actuator, Receipt, Standing


class Routed:
    """An `Actuator` made of two."""

    def __init__(self, scheduler: Actuator, pager: Actuator) -> None:
        self._scheduler = scheduler
        self._pager = pager
        self.name = f"{scheduler.name}, pages by {pager.name}"

    async def carry_out(self, order: FleetOrder) -> Receipt:
        """Have it carried out by the one that it is for. Raises ActuatorError."""
        return await (self._pager if isinstance(order, Notify) else self._scheduler).carry_out(order)

    async def standing(self, hosts: Collection[HostName]) -> Mapping[HostName, Standing]:
        """How the scheduler treats the hosts. Raises ActuatorError."""
        return await self._scheduler.standing(hosts)
