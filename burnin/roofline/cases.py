"""What the model expects of the cases of `rate`, and of which parts it may be held against a GPU. Pure.

A part whose constants nobody scored on hardware is expected nothing of, in so many words: its GPUs are compared with
their peers. The expectation is of long, steady work at the power limit that the GPU has, so one that starts cold is
faster for a moment, never slower.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from burnin.parts.part import Part
from burnin.roofline.gemm import Expected, expect
from burnin.roofline.kernels import OPERAND_BYTES, Gemm
from burnin.spec import Case, Device, SpecError
from burnin.verdict.health import Felt
from burnin.verdict.rates import Expectation

PRODUCT = re.compile(r"(?P<dtype>\w+) library (?P<m>\d+)x(?P<k>\d+)x(?P<n>\d+)(?P<rounded> rounded)?")
"""Names of products in the suite: MxKxN, as `burnin.workloads.plans` gives them."""
DEVICE_COPY = "device copy"
ACCUMULATOR_BYTES = {"fp64": 8}
"""Of an output that is not rounded to the operands' dtype; 4 for the others."""
LIMIT_SLACK = 1.02
"""By how much a part's published power may be exceeded by the limit that is set and still be that limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """What an expectation depends on."""

    part: str
    case: str
    limit_watts: float


class Model:
    """The expectations of the parts that are known; remembers what it computed."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """`parts`: those that there are files of."""
        self._parts = tuple(parts)
        self._known: dict[_Key, Expectation] = {}

    def __call__(self, device: Device, case: Case, felt: Felt) -> Expectation:
        """What a case should reach on a device, or why nothing can be expected."""
        part = next((one for one in self._parts if device.sku in one.skus), None)
        if part is None:
            return _nothing(f"no constants for this part ({device.sku})")
        if device.sm_count != part.units:
            return _nothing(f"{device.sm_count} of {part.units} units of {part.title}: a slice of a GPU")
        if part.fitted is None or part.fitted.error_p90 is None:
            return _nothing(f"the constants of {part.title} were not scored on hardware")
        limit = felt.power_limit_watts
        if limit is None:
            return _nothing("the power limit cannot be read here, and it decides the clock")
        key = _Key(part=part.name, case=case.name, limit_watts=min(limit, LIMIT_SLACK * part.tdp_watts))
        if key not in self._known:
            self._known[key] = _expectation(part, case, key.limit_watts, part.fitted.error_p90)
        return self._known[key]


def _nothing(why: str) -> Expectation:
    return Expectation(rate=None, error=0.0, why=why)


def _expectation(part: Part, case: Case, limit_watts: float, error: float) -> Expectation:
    fitted = part.fitted
    assert fitted is not None  # noqa: S101 - asked by the caller
    if case.name == DEVICE_COPY:
        if fitted.copy_share is None:
            return _nothing(f"copies on {part.title} were never measured")
        rate = fitted.copy_share * part.hbm_bytes_per_second
        return Expectation(rate=rate, error=error, why=f"{part.title}, bound by device memory")
    gemm = gemm_of(case)
    if gemm is None:
        return _nothing(f"{case.name}: no model of it")
    if gemm.dtype not in fitted.dtypes:
        return _nothing(f"{gemm.dtype} was never measured on {part.title}")
    try:
        expected = expect(part, gemm, limit_watts=limit_watts)
    except SpecError as refused:
        return _nothing(str(refused))
    return Expectation(
        rate=expected.flops_per_second, error=error, why=f"{part.title}, {_words(expected, limit_watts)}"
    )


def _words(expected: Expected, limit_watts: float) -> str:
    clock = f"{expected.clock_hertz / 1e6:.0f} MHz at {limit_watts:.0f} W"
    return f"bound by {expected.bound}, {clock}, {expected.kernels}"


def gemm_of(case: Case) -> Gemm | None:
    """The library's product that a case is; None: it is something else."""
    found = PRODUCT.fullmatch(case.name)
    if found is None or found["dtype"] not in OPERAND_BYTES:
        return None
    dtype = found["dtype"]
    output = OPERAND_BYTES[dtype] if found["rounded"] else ACCUMULATOR_BYTES.get(dtype, 4)
    return Gemm(m=int(found["m"]), n=int(found["n"]), k=int(found["k"]), dtype=dtype, output_bytes=output)
