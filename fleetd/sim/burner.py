"""Simulated burn-ins: they take their virtual time, then find what is wrong with the parts, in a real report."""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from burnin.spec import SCHEMA
from fleetd.model.finding import FaultClass, Verdict
from fleetd.model.order import RunBurnin
from fleetd.ports import BurnerError, Clock
from fleetd.sim.gpu import SimGpu, Trouble
from fleetd.sim.life import Life

SECONDS: Mapping[str, float] = MappingProxyType(
    {"self": 5.0, "smoke": 60.0, "quick": 180.0, "qualify": 600.0, "burnin": 1800.0, "soak": 7200.0}
)
"""Virtual duration of each level."""

_SOMETIMES_RATIO = 0.5
"""How often a burn-in catches a part that is only sometimes wrong."""

_BLAME: dict[Trouble, tuple[FaultClass, str]] = {
    Trouble.LOST: (FaultClass.UNRESPONSIVE, "it does not answer"),
    Trouble.HUNG: (FaultClass.UNRESPONSIVE, "it does not answer"),
    Trouble.WRONG: (FaultClass.CHIP_PERSISTENT, "wrong in every launch, alone among its siblings"),
    Trouble.SOMETIMES_WRONG: (FaultClass.CHIP_TRANSIENT, "wrong in one launch, alone among its siblings"),
    Trouble.MEMORY: (FaultClass.MEMORY, "uncorrected memory errors while it ran"),
    Trouble.SLOW: (FaultClass.SLOW, "a fifth below the rate of its siblings"),
    Trouble.HOT: (FaultClass.SLOW, "it slows down because it is hot"),
    Trouble.POWER_BRAKE: (FaultClass.SLOW, "the power brake is on"),
}
"""Trouble → what a burn-in says of the part, the gravest first."""


class SimBurner:
    """The `Burner` port of one agent process."""

    def __init__(
        self,
        *,
        parts: Sequence[SimGpu],
        clock: Clock,
        life: Life,
        rng: random.Random,
        seconds: Mapping[str, float] = SECONDS,
        broken: Callable[[], bool] = lambda: False,
        alike_wrong: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make a burner.

        Args:
            parts: of this host, by index; looked at when a run ends.
            clock: of the host.
            life: of the agent's process; the burn-in dies with it.
            rng: decides what a burn-in catches of a fault that comes and goes.
            seconds: virtual duration of each level.
            broken: whether burn-ins cannot run on this host at present.
            alike_wrong: whether all parts compute the same wrong results, which only other hosts can tell.
        """
        self._parts = parts
        self._clock = clock
        self._life = life
        self._rng = rng
        self._seconds = seconds
        self._broken = broken
        self._alike_wrong = alike_wrong

    async def burn(self, order: RunBurnin, report: Path) -> None:
        """Take the level's time and leave the report. Raises BurnerError."""
        self._life.boundary(f"before burn-in {order.id}")
        if order.level not in self._seconds:
            raise BurnerError(f"no level {order.level!r}")
        await self._clock.sleep_s(self._seconds[order.level])
        self._life.check()
        if self._broken():
            raise BurnerError("burn-ins cannot run on this simulated host")
        body = json.dumps(self._report(order))
        report.parent.mkdir(parents=True, exist_ok=True)
        part = report.with_suffix(".part")
        part.write_text(body)
        part.replace(report)
        self._life.boundary(f"after burn-in {order.id}")

    def _report(self, order: RunBurnin) -> dict[str, object]:
        culprits = [
            {"gpu": part.gpu, "index": index, "class": found[0], "why": found[1]}
            for index, part in enumerate(self._parts)
            if (found := self._found(part)) is not None
        ]
        verdict = Verdict.FAIL if culprits else Verdict.PASS
        vote_key = f"sim/{order.level}"
        agreed = hashlib.sha256(f"{vote_key}{' wrong' if self._alike_wrong() else ''}".encode()).hexdigest()[:32]
        return {
            "schema": SCHEMA,
            "verdict": verdict,
            "level": order.level,
            "seed": int.from_bytes(hashlib.sha256(order.id.encode()).digest()[:4]),
            "vote_key": vote_key,
            "culprits": culprits,
            "ballots": [] if culprits else [{"key": vote_key, "fingerprint": agreed}],
        }

    def _found(self, part: SimGpu) -> tuple[FaultClass, str] | None:
        for trouble, blame in _BLAME.items():
            if trouble in part.troubles:
                caught = trouble is not Trouble.SOMETIMES_WRONG or self._rng.random() < _SOMETIMES_RATIO
                if caught:
                    return blame
        return None
