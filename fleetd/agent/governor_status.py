"""What the governor shows of a GPU."""

from collections.abc import Sequence

from fleetd.core.power.govern import GpuState
from fleetd.core.power.modes import Mode
from fleetd.core.power.observe import sights
from fleetd.model.ids import GpuId
from fleetd.model.power import GpuPower, PowerReading, PowerSeen, WindowShown, Writer


def shown(
    gpu: GpuId,
    state: GpuState,
    reading: PowerReading | None,
    *,
    rest: str,
    smoothing_lost: bool | None = None,
    lately: PowerSeen | None = None,
    windows: Sequence[WindowShown] = (),
    clock_limit_hertz: float | None = None,
) -> GpuPower:
    """A GPU that is governed; `rest`: why it is not written to for a while; `lately`: what its power did."""
    why = state.mode.why
    seen = () if reading is None else reading.knobs
    return GpuPower(
        gpu=gpu,
        mode=state.mode.mode.value,
        why=f"{rest}; {why}" if rest and rest not in why else why,
        targets_watts={} if state.mode.mode is Mode.OBSERVE else dict(state.targets),
        set_watts={knob.knob: knob.set_watts for knob in seen if knob.set_watts is not None},
        enforced_watts=None if reading is None else reading.enforced_watts,
        power_watts=None if reading is None else reading.power_watts,
        writer=_writer(state, rest),
        defaults_watts={knob.knob: knob.default_watts for knob in seen if knob.default_watts is not None},
        clock_limit_hertz=clock_limit_hertz,
        smoothing_lost=smoothing_lost,
        seen=lately,
        sights=sights(windows, lately, held=state.mode.mode is not Mode.OBSERVE),
    )


def _writer(state: GpuState, rest: str) -> str:
    if rest:
        return Writer.NOT_TAKEN.value
    if state.drift is not None:
        return state.drift.writer.value
    return Writer.FOREIGN.value if state.held else ""


def left_alone(gpu: GpuId, why: str) -> GpuPower:
    """A GPU that is not governed."""
    return GpuPower(
        gpu=gpu, mode=Mode.OBSERVE.value, why=why, targets_watts={}, set_watts={}, enforced_watts=None, power_watts=None
    )
