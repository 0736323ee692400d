"""Several controllers on one ledger: each stands by until it is the judge, and judges until it is not.

Always true: nothing of a term outlives it. Whatever ends one (another judge, the database, a session that was cut),
the next begins by reading the ledger, as after a restart.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import structlog

from fleetd.controller.turn import Turn
from fleetd.ports import Clock, NotJudge, OtherSchema, RunBlocking, Seat, Store, StoreError

_log = structlog.get_logger(__name__)

TRY_SECONDS = 0.25
"""Between two attempts to become the judge: how long nobody judges after one has died."""
LOOK_SECONDS = 0.5
"""Between two looks whether the place is still ours."""
PATIENCE_SECONDS = 2.5
"""How long a look may take. Together with the wait for it less than the database's own patience with a silent judge
(`stores.seat.SILENT_SECONDS`): whoever is cut off stops before another can begin."""


class Terms:
    """Stands by and judges in turn, for ever."""

    def __init__(
        self,
        seat: Seat,
        *,
        turn: Turn,
        clock: Clock,
        run_blocking: RunBlocking,
        judge: Callable[[Store], Coroutine[Any, Any, None]],
    ) -> None:
        """Wire it.

        Args:
            seat: the judge's place.
            turn: told who else has it; `judge` tells it the rest.
            clock: waits between attempts and looks.
            run_blocking: runs what the seat does.
            judge: judges on a ledger until it is cancelled, or raises NotJudge; what it has begun it ends itself.
        """
        self._seat = seat
        self._turn = turn
        self._clock = clock
        self._run_blocking = run_blocking
        self._judge = judge
        self._reached = False
        self._trouble = ""

    async def run(self) -> None:
        """Stand by and judge until cancelled.

        Raises:
            StoreError: the database could not be reached the very first time: somebody has to look at the
                configuration. OtherSchema whenever it is found.
        """
        try:
            while True:
                store = await self._elected()
                try:
                    await self._term(store)
                finally:
                    await self._run_blocking(store.close)
                    await self._run_blocking(self._seat.leave)
        finally:
            await self._run_blocking(self._seat.leave)

    async def _elected(self) -> Store:
        """Try until it is our turn."""
        _log.info("standing by")
        while True:
            try:
                store = await self._take()
            except OtherSchema:
                raise
            except StoreError as error:
                if not self._reached:
                    raise
                if self._trouble != (said := str(error)):
                    self._trouble = said
                    _log.error("the ledger cannot be reached", why=said)
                store = None
            else:
                self._reached, self._trouble = True, ""
            self._turn.rival = self._seat.rival
            if store is not None:
                return store
            await self._clock.sleep_s(TRY_SECONDS)

    async def _take(self) -> Store | None:
        found: list[Store | None] = []
        await self._run_blocking(lambda: found.append(self._seat.take()))
        return found[0]

    async def _term(self, store: Store) -> None:
        _log.info("judge from now on")
        tasks = [asyncio.create_task(self._judge(store)), asyncio.create_task(self._watch())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [end for end in ends if end is not None and not isinstance(end, asyncio.CancelledError)]
        for error in errors:
            if not all(isinstance(leaf, StoreError) for leaf in _leaves(error)):
                raise error
        _log.warning("judge no more", why="; ".join(sorted({str(leaf) for error in errors for leaf in _leaves(error)})))

    async def _watch(self) -> None:
        """Return never; raises StoreError as soon as the place is not known to be ours."""
        while True:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._run_blocking(self._seat.held)
            except TimeoutError as error:
                raise NotJudge(f"the database has not answered for {PATIENCE_SECONDS:g} s") from error
            await self._clock.sleep_s(LOOK_SECONDS)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
