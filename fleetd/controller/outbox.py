"""One attempt at an order: claimed first, so that no other controller works on it, and none whose time is over acts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fleetd.model.order import FleetOrder, Order
from fleetd.ports import Actuator, NoNode, RunBlocking, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """What became of an attempt that did not fail."""

    done: bool
    """It is carried out or void, and the ledger knows."""
    why: str
    void: bool = False
    held_back: bool = False
    """It is meant, and has to wait: nothing was done."""


async def attempt(
    order: FleetOrder,
    *,
    store: Store,
    actuator: Actuator,
    run_blocking: RunBlocking,
    void_since: Callable[[Order], str | None],
    void_without_node: Callable[[Order], str | None],
    held_back: Callable[[Order], str | None],
) -> Attempted | None:
    """Try an order once; None: another controller is at it at this moment.

    The claim sees that this controller is still the judge, right before the act. What remains is an act that was begun
    before that ended: whoever carries the order out again finds the mark of the first time, and changes nothing.

    Raises ActuatorError, StoreError, and NotJudge when this controller is not the judge any more.
    """
    claims = []
    await run_blocking(lambda: claims.append(store.claim(order.id)))
    (claim,) = claims
    if claim is None:
        return None
    try:
        void = void_since(order)
        if void is None:
            # Asked with nothing between this and the act: a claim takes a while, and a person may stop everything.
            if (waits := held_back(order)) is not None:
                return Attempted(done=False, why=waits, held_back=True)
            try:
                receipt = await actuator.carry_out(order)
            except NoNode:
                void = void_without_node(order)
                if void is None:
                    raise
        if void is None and not receipt.done:
            return Attempted(done=False, why=receipt.why)
        result = receipt.why if void is None else f"void: {void}"
        await run_blocking(partial(claim.finish, result))
        return Attempted(done=True, why=receipt.why if void is None else void, void=void is not None)
    finally:
        await run_blocking(claim.let_go)
