"""The table of fault models. To add one: a strike in `arithmetic` or `stores`, and a line here."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from burnin.inject import arithmetic, stores
from burnin.inject.models import Strike
from burnin.spec import Case, Inject, SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row of the table."""

    what: str
    strike: Strike
    floats_only: bool = False
    in_arithmetic: bool = False
    """Whether it sits in a datapath, and so in results of that datapath only."""
    share: float = 1.0
    """Launches it strikes at rate 1: below 1 for a fault that is intermittent by nature."""
    cases: str = ""
    """Pattern of the cases ("test name dtype") whose operation is broken; empty: all."""
    ops: str = ""
    """Pattern of the operation inside such a case, where the workload names it."""
    first_launches: int | None = None
    """Strikes only so soon after a pause in the load."""
    above_celsius: float | None = None
    """Strikes only when the chip is hotter; where that cannot be read it never fires."""
    whole: bool = False
    """Whether it takes all that a launch gives; others sit in one place of the chip, or in one operation."""


LOAD_STEP_LAUNCHES = 2
"""Launches after the pause in which inputs are made: what a load step of 50 ms covers of the shortest tests."""
HOT_CELSIUS = 60.0
"""An H200 idles near 30 °C and reaches 60 °C within seconds of load."""
_COLLECTIVES = r"(collective|overlap\.links)"

FAULTS: dict[str, Fault] = {
    "F01": Fault(what="lane stuck-at on the accumulator", strike=arithmetic.stuck_lane, in_arithmetic=True),
    "F02": Fault(what="the same lane, intermittent", strike=arithmetic.stuck_lane, in_arithmetic=True, share=0.25),
    "F03": Fault(what="multi-bit XOR, stride 16-128", strike=arithmetic.strided_bits, in_arithmetic=True),
    "F04": Fault(what="single bit, uniform over the width", strike=arithmetic.single_bit, in_arithmetic=True),
    "F05": Fault(what="single bit, low mantissa", strike=arithmetic.low_mantissa, in_arithmetic=True),
    "F06": Fault(what="wherever 8-12 data bits match", strike=arithmetic.matched_data, in_arithmetic=True),
    "F07": Fault(what="fp8 matrix unit only", strike=arithmetic.strided_bits, cases=r"^gemm\S* .*\bfp8"),
    "F07.exp2": Fault(
        what="exp2 unit only", strike=arithmetic.strided_bits, cases=r"^sfu (?!conver)", ops=r"exp2|softmax"
    ),
    "F07.convert": Fault(what="conversions only", strike=arithmetic.strided_bits, cases=r"conver"),
    "F07.dq": Fault(what="backward dQ only", strike=arithmetic.strided_bits, cases=r"^attention\b", ops=r"dq"),
    "F08": Fault(
        what="right after a load step",
        strike=arithmetic.strided_bits,
        in_arithmetic=True,
        first_launches=LOAD_STEP_LAUNCHES,
    ),
    "F08.hot": Fault(
        what=f"above {HOT_CELSIUS:.0f} °C",
        strike=arithmetic.strided_bits,
        in_arithmetic=True,
        above_celsius=HOT_CELSIUS,
    ),
    "F09": Fault(
        what=f"dropped K-step; 1/{arithmetic.STEPS} of the sums where the library hides its steps",
        strike=arithmetic.dropped_step,
        in_arithmetic=True,
    ),
    "F10": Fault(what="zero or stale tile", strike=stores.lost_tile),
    "F11": Fault(what="two tiles swapped", strike=stores.swapped_tiles),
    "F11.rows": Fault(what="rows of a tile shifted", strike=stores.shifted_rows),
    "F11.holes": Fault(what="every 131,101-th element zero", strike=stores.holes),
    "F12": Fault(what="a NaN or an infinity", strike=stores.not_finite, floats_only=True),
    "F13": Fault(what="even count of identical flips", strike=stores.even_flips),
    "F14": Fault(what="memory cells stuck", strike=stores.stuck_cell),
    "F14.coupled": Fault(what="memory cells that follow a neighbour", strike=stores.coupled_cell),
    "F14.retention": Fault(what="memory cells that leak", strike=stores.leaking_cells),
    "F15": Fault(what="cache gives the wrong sector", strike=stores.wrong_sector),
    "F16": Fault(
        what="copies and links damage a sector", strike=stores.damaged_sector, cases=rf"^(copy|{_COLLECTIVES})"
    ),
    "F17": Fault(
        what="in-switch reduction damages a sector",
        strike=stores.damaged_sector,
        cases=rf"^{_COLLECTIVES}.*reduce",
    ),
    "F18": Fault(what="one rank's collective result damaged", strike=stores.damaged_sector, cases=rf"^{_COLLECTIVES}"),
    "F22": Fault(what="no store arrives, as if nothing was launched", strike=stores.lost_output, whole=True),
}
"""The models by identifier (those of the detection benchmark)."""


def eligible(fault: Fault, case: Case) -> bool:
    """Whether the fault can strike a case at all."""
    if fault.floats_only and case.dtype.startswith(("int", "uint", "bytes")):
        return False
    return not fault.cases or re.search(fault.cases, f"{case.test} {case.name} {case.dtype}") is not None


def check(inject: Inject, cases: Iterable[Case], *, heats: Callable[[Case], bool] = lambda _: True) -> str:
    """Refuse a fault that cannot change anything.

    Args:
        inject: what the user asked for.
        cases: all cases of the chosen tests that hand their outputs through an `Injector`.
        heats: whether the device gets hot in a case, and says so.

    Returns:
        What the fault is, in words.

    Raises:
        SpecError: unknown fault, a rate outside (0, 1], or no chosen case that the fault can strike.
    """
    if inject.fault not in FAULTS:
        raise SpecError(f"inject: unknown fault {inject.fault!r}; known: {', '.join(FAULTS)}")
    if not 0 < inject.rate <= 1:
        raise SpecError(f"inject: rate {inject.rate:g} of {inject.fault} is not in (0, 1]; 1 strikes every launch")
    fault = FAULTS[inject.fault]
    told = f"{inject.fault} ({fault.what})"
    chosen = list(cases)
    if not chosen:
        raise SpecError("inject: none of the chosen tests has results to strike; add --test gemm.exact")
    struck = [case for case in chosen if eligible(fault, case)]
    if fault.floats_only and not struck:
        raise SpecError(f"inject: {told} needs floats, but all chosen cases are integer")
    if not struck:
        raise SpecError(f"inject: {told} strikes none of the chosen cases; choose other tests")
    if fault.above_celsius is not None and not any(map(heats, struck)):
        why = "no device gets that hot in them here, or none says so (a simulated one does in thermal)"
        raise SpecError(f"inject: {told} strikes none of the chosen cases: {why}")
    return told
