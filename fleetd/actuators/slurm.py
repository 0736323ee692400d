"""Closes and opens nodes of Slurm by `scontrol`, as often as needed and once in effect.

Slurm itself keeps what was done: the reason of a drained node names the order (`mark`). It is read before each change
and after it. A node that somebody else has drained is never touched, and no reason but ours is ever replaced. Slurm
knows no compare-and-set: between the look and the change a person may drain the node, within milliseconds, and his
reason would be lost; the look is as close to the change as it can be.
"""

from collections.abc import Collection, Mapping

import structlog

from fleetd.actuators import slurm_text
from fleetd.actuators.claims import Claims
from fleetd.actuators.command import Answer, Commands
from fleetd.actuators.config import SlurmConfig
from fleetd.actuators.mark import Mark, by_health_check, number_of, reason_of, standing_by
from fleetd.actuators.slurm_leave import Leaving
from fleetd.actuators.slurm_text import NodeView
from fleetd.model.ids import HostName
from fleetd.model.order import FleetOrder, Notify, Quarantine, Release
from fleetd.ports import ActuatorError, ActuatorObjection, Clock, NoNode, Receipt, Standing

_log = structlog.get_logger(__name__)

NOBODYS = frozenset({"Not responding", "Node unexpectedly rebooted"})
"""What Slurm itself writes on a node that is down: no person's words, and it may be back in service any moment."""


class Slurm:
    """The `Actuator` of a Slurm cluster."""

    name = "slurm"

    def __init__(self, config: SlurmConfig, *, commands: Commands, clock: Clock) -> None:
        """`commands` runs what `config` names; the clock's wall time bounds how long jobs may stay."""
        self._config = config
        self._commands = commands
        self._clock = clock
        self._claims = Claims(config.hosts)
        self._leaving = Leaving(config, commands=commands, clock=clock)

    async def carry_out(self, order: FleetOrder) -> Receipt:
        """Drain or undrain the host's node. Raises ActuatorError, ActuatorObjection."""
        if isinstance(order, Notify):
            return Receipt(order_id=order.id, done=True, why="logged; nobody else is told: no webhook is configured")
        node = self._claims.node_of(order.host)
        return await (self._undrain(order, node) if isinstance(order, Release) else self._drain(order, node))

    async def standing(self, hosts: Collection[HostName]) -> Mapping[HostName, Standing]:
        """How Slurm treats the nodes of these hosts. Raises ActuatorError."""
        self._claims.take(hosts)
        answer = await self._commands.run(self._config.scontrol, "show", "nodes")
        if answer.code != 0:
            raise ActuatorError(f"scontrol show nodes: {answer.said}")
        views = {view.name: view for view in slurm_text.nodes(answer.out)}
        if (
            not views
        ):  # a slurmctld that has just been reconfigured; that all hosts are unknown to it is no news of them
            raise ActuatorError("scontrol show nodes names no node")
        found = {}
        for node, host in self._claims.undisputed.items():
            view = views.get(node)
            if view is None:
                found[host] = Standing(closed=False, order_id=None, known=False)
                continue
            found[host] = standing_by(Mark.of_reason(view.reason) if view.closed else None, host, closed=view.closed)
        return found

    # ── orders ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _drain(self, order: Quarantine, node: str) -> Receipt:
        seen_s = self._clock.elapsed_s()
        view = await self._look(node)
        if view is None:
            raise NoNode(
                f"Slurm knows no node {node}: if it is called otherwise, say so in `actuator: hosts: nodes` "
                f"({order.host}: NAME)"
            )
        mark = Mark.of_reason(view.reason)
        if mark is None and not _gives_way(view):
            raise ActuatorObjection(
                f"{node} is {_state(view)} by {view.who or 'somebody else'} ({view.reason or 'no reason given'}), "
                "which stays as it is; fleetd closes the node as soon as that is lifted"
            )
        if mark is not None and mark.host != order.host:
            raise NoNode(f"{node} is drained for {mark.host}: two hosts of the fleet claim it")
        if mark is not None and mark.number > number_of(order.id):
            return Receipt(order_id=order.id, done=True, why=f"stale: {node} is drained by the later {mark.order_id}")
        if mark is None or not view.closed:
            await self._change(seen_s, node, "State=DRAIN", f"Reason={reason_of(order.id, order.why)}")
            await self._read_back(node, order)
        gone = await self._leaving.look(order, node)
        return Receipt(order_id=order.id, done=gone.done, why=f"{node} drained in Slurm; {gone.why}")

    async def _undrain(self, order: Release, node: str) -> Receipt:
        view = await self._look(node)
        if view is None:
            # Not an objection: a node that was taken out of the cluster has nothing of ours on it. Should it come
            # back closed by us, the comparison with the ledger finds it.
            _log.warning("slurm_node_unknown", node=node, host=order.host)
            return Receipt(
                order_id=order.id, done=True, why=f"Slurm knows no node {node}: there is nothing to give back"
            )
        mark = Mark.of_reason(view.reason)
        if mark is None or not view.closed:
            left = f"; {_state(view)} by {view.who or 'somebody else'}: left as it is" if view.closed else ""
            return Receipt(order_id=order.id, done=True, why=f"no drain of fleetd is on {node}{left}")
        if mark.host != order.host:
            return Receipt(order_id=order.id, done=True, why=f"{node} is drained for {mark.host}: left as it is")
        if mark.number > number_of(order.id):
            return Receipt(order_id=order.id, done=True, why=f"stale: {node} is drained by the later {mark.order_id}")
        await self._leaving.forget(node, mark.order_id)
        seen_s = self._clock.elapsed_s()
        again = await self._look(node)  # the jobs have taken a while
        if again is None or again.reason != view.reason:
            raise ActuatorError(f"{node} has changed while its jobs were looked at; it is looked at again")
        await self._change(seen_s, node, "State=UNDRAIN")  # it alone leaves DOWN, and who else closed it, as they are
        after = await self._look(node)
        if after is not None and Mark.of_reason(after.reason) is not None and after.closed:
            raise ActuatorError(f"{node} is still drained after scontrol undrained it")
        return Receipt(order_id=order.id, done=True, why=f"{node} undrained in Slurm")

    async def _read_back(self, node: str, order: Quarantine) -> None:
        view = await self._look(node)
        mark = Mark.of_reason(view.reason) if view is not None else None
        if view is None or mark is None or mark.order_id != order.id or not view.closed:
            raise ActuatorError(f"{node} is not drained by {order.id} after scontrol said so")

    # ── Slurm ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _look(self, node: str) -> NodeView | None:
        """The node as it is; None when Slurm knows none of that name."""
        answer = await self._commands.run(self._config.scontrol, "show", "node", node)
        if answer.code != 0:
            if _unknown(answer, node):
                return None
            raise ActuatorError(f"scontrol show node {node}: {answer.said}")
        views = slurm_text.nodes(answer.out)
        if len(views) != 1 or views[0].name != node:
            raise ActuatorError(f"scontrol show node {node} showed {len(views)} others")
        return views[0]

    async def _change(self, seen_s: float, node: str, *changes: str) -> None:
        """Change a node as it was seen, unless that was too long ago (on the monotonic clock)."""
        if self._clock.elapsed_s() > seen_s + self._config.timeout_seconds:
            raise ActuatorError("Slurm answered too slowly to act on what it said; it is asked again")
        answer = await self._commands.run(self._config.scontrol, "update", f"NodeName={node}", *changes)
        if answer.code != 0:
            raise ActuatorError(f"scontrol update {node} {changes[0]}: {answer.said}")


def _gives_way(view: NodeView) -> bool:
    """Whether nobody's will stands in our way: the node is open, or closed by its own health check alone."""
    if by_health_check(view.reason):
        return True
    return not view.closed and (not view.reason or view.reason in NOBODYS)


def _unknown(answer: Answer, node: str) -> bool:
    return f"Node {node} not found" in f"{answer.out}{answer.err}"


def _state(view: NodeView) -> str:
    return "drained" if view.closed else "+".join(sorted(view.flags)).lower()
