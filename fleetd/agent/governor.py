"""The governor's loop: read the limits, decide (core.power.govern), have the guard write, read back, tell.

It writes nothing itself and holds no privilege: the power guard writes, as long as this loop keeps its lease alive.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from fleetd.agent.governor_asks import declaration, lowered
from fleetd.agent.governor_config import GovernorConfig
from fleetd.agent.governor_parts import Parts
from fleetd.agent.governor_ports import Budget, Line, Outside, Plan, Read
from fleetd.agent.governor_rest import Rests
from fleetd.agent.governor_seen import GovernorSeen
from fleetd.agent.governor_status import left_alone, shown
from fleetd.agent.power_lease import PowerCap
from fleetd.core.power.govern import (
    Decision,
    GovernConfig,
    GpuState,
    begin,
    decide,
    falls,
    suspicious,
    wish_watts,
)
from fleetd.core.power.modes import Mode
from fleetd.core.power.provenance import drift_of
from fleetd.core.power.transaction import orders
from fleetd.model.envelope import Envelope
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.power import GpuPower, PowerReading, PowerStatus, Writer
from fleetd.ports import Clock, DeviceError

_log = structlog.get_logger(__name__)

READ_BACKS = 3
"""Looks at what is in force after a write: firmware may take some milliseconds to take a limit."""
READ_BACK_S = 0.02
NO_CAP = PowerCap(seq=0, host_watts=0.0, gpu_watts=None, why="")
REARM_S = 1.0
"""Between two tries to get a lease."""


@dataclass(slots=True, kw_only=True)
class _Counts:
    writes: int = 0
    errors: int = 0
    drift: dict[str, int]


class Governor:
    """Runs until cancelled. `status` may be called from another thread."""

    def __init__(
        self,
        *,
        config: GovernorConfig,
        envelope: Envelope,
        plan: Plan,
        read: Read,
        line: Line,
        clock: Clock,
        inventory: Callable[[], Sequence[Gpu]],
        released: Callable[[], bool],
        outside: Outside,
        budget: Budget | None = None,
        unenforceable: str = "",
    ) -> None:
        """Read nothing yet.

        Args:
            config: the operator's wishes.
            envelope: of the part.
            plan: what holds for a GPU.
            read: reads the limits.
            line: to the guard.
            clock: monotonic time and waiting.
            inventory: the GPUs of this host.
            released: whether the agent has let go of the GPUs.
            outside: what else speaks against boost.
            budget: the host's part of the fleet's power budgets; None: it takes part in none.
            unenforceable: why the envelope lets the GPUs be observed only; "": it can be kept.
        """
        self._config, self._envelope, self._read = config, envelope, read
        self._line, self._clock, self._inventory, self._released = line, clock, inventory, released
        self._outside, self._seen = outside, GovernorSeen(envelope)
        self._budget, self._cap, self._unenforceable = budget, NO_CAP, unenforceable
        self._states: dict[GpuId, GpuState] = {}
        self._parts, self._rests = Parts(envelope, plan), Rests()
        self._arm_due_s = -1.0
        self._named: frozenset[GpuId] = frozenset()
        self._counts = _Counts(drift={})
        self._set_point = ""
        self._shown: tuple[GpuPower, ...] = ()

    async def run(self) -> None:
        """Look at all GPUs again and again; at the end give the lease back, or hand it over."""
        try:
            while True:
                began_s = self._clock.elapsed_s()
                await self.turn()
                took_s = self._clock.elapsed_s() - began_s
                await self._clock.sleep_s(max(0.01, self._config.interval_s - took_s))
        finally:
            seconds = self._config.hand_over_seconds
            if self._budget is not None:  # nobody looks at it meanwhile, so the limits must not outlast it
                seconds = min(seconds, self._budget.status().left_s)
            if why := await (self._line.hand_over(seconds) if seconds > 0 else self._line.disarm()):
                _log.error("power_lease_not_given_back", why=why)

    async def turn(self) -> None:
        """One look at all GPUs, and what follows from it."""
        self._line.beat()
        if self._released():
            await self._line.disarm()  # the guard lets go of the driver, too
            self._states.clear()
            return
        parts, configs = self._parts.look(self._inventory())
        self._outside.look(parts.values())
        if self._budget is not None:
            self._cap = self._budget.cap([wish_watts(config) for config in configs.values() if config.safe])
        readings = await self._look(configs)
        self._line.beat()  # the first look starts a helper, which takes seconds on a busy host
        await self._arm(configs, parts, readings)
        decisions: dict[GpuId, Decision] = {}
        for name, config in configs.items():
            state = self._states.get(name) or begin(config)
            decisions[name] = self._decide(name, config, state, readings.get(name))
            self._states[name] = decisions[name].state
        await self._tell_lower(readings)
        await self._write(configs, readings, decisions)
        self._states = {name: state for name, state in self._states.items() if name in configs}
        self._seen.keep(configs)
        self._show(parts, configs, readings)
        if self._budget is not None:
            self._budget.turned(self._cap, self._shown)

    async def _look(self, configs: Mapping[GpuId, GovernConfig]) -> dict[GpuId, PowerReading]:
        try:
            samples = self._seen.due(tuple(configs), self._clock.elapsed_s())
            found = {one.gpu: one for one in await self._read(samples=samples) if one.gpu in configs}
            self._seen.take(found)
            if any(
                suspicious(configs[n], self._states.get(n) or begin(configs[n]), found[n])
                for n in configs
                if n in found
            ):
                found |= {one.gpu: one for one in await self._read(energy=True)}
        except DeviceError as error:
            _log.warning("no_power_limits", why=str(error))
            return {}
        return found

    def _decide(self, name: GpuId, config: GovernConfig, state: GpuState, reading: PowerReading | None) -> Decision:
        line, why = self._line, self._line.why
        replaced = line.program_replaced
        if replaced:
            why = "the guard's program was replaced while it runs: `systemctl reload fleetd-powerguard`"
        now_s = self._clock.elapsed_s()
        against = "; ".join(filter(None, (self._outside.against(name), self._cap.why)))
        live = line.live and not replaced
        found = decide(
            now_s,
            config,
            state,
            reading,
            lease_live=live,
            lease_why=why,
            against=against,
            cap_watts=self._cap.gpu_watts,
            clock_hertz=line.clocks.get(name),
        )
        if found.news is not None:
            self._counts.drift[found.news.writer] = self._counts.drift.get(found.news.writer, 0) + 1
            _log.warning("power_limit_moved", gpu=name, writer=found.news.writer.value, why=str(found.news))
        if found.state.mode.mode is not state.mode.mode:
            _log.info("power_mode", gpu=name, mode=found.state.mode.mode.value, why=found.why)
        return found

    # ── the guard ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _arm(
        self, configs: Mapping[GpuId, GovernConfig], parts: Mapping[GpuId, Gpu], readings: Mapping[GpuId, PowerReading]
    ) -> None:
        """Get a lease when there is none, or when there is a GPU that the guard has not heard of.

        In `observe` none is asked for, so nothing can ever be written.
        """
        if self._config.mode == Mode.OBSERVE.value or self._clock.elapsed_s() < self._arm_due_s:
            return
        live = self._line.live
        if live and self._named.issuperset(name for name in configs if name in readings):
            return
        asked = {
            name: entry
            for name, config in configs.items()
            if name in readings and (entry := declaration(self._envelope, parts[name], config, readings[name]))
        }
        if not asked or (live and self._named.issuperset(asked)):
            return
        self._arm_due_s = self._clock.elapsed_s() + REARM_S
        lease = self._envelope.lease
        if not await self._line.arm(list(asked.values()), ttl_s=lease.ttl_s, grace_s=lease.grace_s):
            self._named = frozenset(asked) | (self._named if live else frozenset())

    async def _tell_lower(self, readings: Mapping[GpuId, PowerReading]) -> None:
        """Have the guard know of limits that others lowered, so that its fall does not raise them."""
        lower = lowered(self._states, readings)
        if lower and self._line.live:
            try:
                await self._line.seen(lower)
            except DeviceError as error:
                _log.warning("guard_not_told", why=str(error))

    async def _write(
        self,
        configs: Mapping[GpuId, GovernConfig],
        readings: Mapping[GpuId, PowerReading],
        decisions: Mapping[GpuId, Decision],
    ) -> None:
        """The transaction: what goes down first, then what goes up, then everything is read back."""
        now_s = self._clock.elapsed_s()
        # One GPU that the guard has not heard of would have it refuse the writes of all others.
        able = {n: d for n, d in decisions.items() if n in self._named and not self._rests.why(n, now_s)}
        if not self._line.live:
            return
        failed: dict[str, str] = {}
        for order in orders(able, readings):
            step = order.without(frozenset(failed))
            if not step.gpus:
                continue
            reason = "; ".join(dict.fromkeys(decisions[GpuId(n)].why for n in sorted(step.gpus)))
            try:
                errors = await self._line.write(step.limits, step.clocks, reason)
            except DeviceError as error:
                _log.warning("power_limits_not_written", why=str(error))
                return
            self._counts.writes += len(step.gpus)
            failed |= errors
        for name, why in failed.items():
            self._fail(GpuId(name), f"its limit cannot be written: {why}")
        taken = [n for n, one in able.items() if one.write and n not in failed]
        for name in taken:
            self._states[name] = replace(self._states[name], targets={**self._states[name].targets, **able[name].write})
        if taken:
            await self._read_back(configs, taken)

    async def _read_back(self, configs: Mapping[GpuId, GovernConfig], names: Sequence[GpuId]) -> None:
        """Compare what is in force with what was written; a GPU that did not take it rests, at `safe`."""
        left: dict[GpuId, str] = dict.fromkeys(names, "it does not answer after a write")
        for attempt in range(READ_BACKS):
            if attempt:
                await self._clock.sleep_s(READ_BACK_S)
            try:
                found = {one.gpu: one for one in await self._read()}
            except DeviceError:
                continue
            for name in [name for name in left if name in found]:
                state = self._states[name]
                drift = drift_of(
                    state.targets, falls(configs[name], state), found[name], energy_joules=None, just_written=True
                )
                if drift is None or drift.writer is not Writer.NOT_TAKEN:
                    del left[name]
                    self._rests.took(name)
                else:
                    left[name] = str(drift)
            if not left:
                return
        for name, why in left.items():
            self._fail(name, why)

    def _fail(self, name: GpuId, why: str) -> None:
        self._counts.errors += 1
        wait_s = self._rests.fail(name, why, self._clock.elapsed_s())
        state = self._states[name]
        self._states[name] = replace(state, mode=replace(state.mode, mode=Mode.SAFE, why=why, good_since_s=None))
        _log.error("power_limit_failed", gpu=name, why=why, next_try_s=wait_s)

    # ── what is shown ───────────────────────────────────────────────────────────────────────────────────────────────

    def _show(
        self, parts: Mapping[GpuId, Gpu], configs: Mapping[GpuId, GovernConfig], readings: Mapping[GpuId, PowerReading]
    ) -> None:
        now_s = self._clock.elapsed_s()
        self._shown = tuple(
            shown(
                name,
                self._states[name],
                readings.get(name),
                rest=self._rests.why(name, now_s),
                smoothing_lost=self._outside.smoothing_lost(name),
                lately=self._seen.of(name),
                windows=self._seen.windows,
                clock_limit_hertz=self._line.clocks.get(name),
            )
            if name in configs
            else left_alone(name, f"the envelope is for {self._envelope.part}, this is {gpu.sku}")
            for name, gpu in parts.items()
        )
        points = dict.fromkeys(config.boost_why for config in configs.values())
        self._set_point = "; ".join(why for why in points if why) or ("in use" if points else "no GPU of the part")

    def status(self) -> PowerStatus:
        """A snapshot."""
        return PowerStatus(
            allowed=self._config.mode,
            envelope=self._envelope.name,
            unenforceable=self._unenforceable,
            set_point=self._set_point,
            lease_live=self._line.live,
            lease_why=self._line.why,
            renewed_total=self._line.renewed_total,
            program_replaced=self._line.program_replaced,
            gpus=self._shown,
            writes_total=self._counts.writes,
            write_errors_total=self._counts.errors,
            drift_total=dict(self._counts.drift),
            tbp_watts=self._envelope.tbp_watts,
            windows=self._seen.windows,
            budget=None if self._budget is None else self._budget.status(),
        )
