"""What others would have said of the same launches: the rules of today's burners, and two weaker forms of our own vote.

Rules, not code: each is written from what the tool checks, read in its favour (operations that an option of it runs
count as run; every launch counts as checked, though copying results to the host would leave time for few).
"""

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch

from burnin.checksum import raw_bytes
from burnin.spec import Case

EPSILON = 1e-3
"""gpu-burn's tolerance for float32 and its tensor-core mode."""
EPSILON_DOUBLE = 1e-7
"""The same for float64."""
ACCURACY_EPSILONS = 10
"""RVS accuracy check: tolerance in units of the dtype's machine epsilon."""
RATE_TOLERANCE = 0.10
"""gpu-fryer: a GPU this much below the best one is an outlier."""


class Rule(Protocol):
    """Looks at the results of one GPU, launch by launch."""

    found: bool
    """Whether it has raised an alarm."""

    def begin(self, case: Case) -> None:
        """A series of launches on the same inputs begins."""

    def see(self, output: torch.Tensor, right: torch.Tensor | None) -> None:
        """One result.

        Args:
            output: what this GPU computed.
            right: what a healthy one computes; only rules that have a reference of their own may look at it.
        """


class SelfCompare:
    """gpu-burn: every result against the GPU's own first one, an error where |first - result| > eps.

    A persistent fault is in the first result as well, so it cancels; a NaN compares false and is no error.
    Runs SGEMM and DGEMM, with an option on the matrix units, on inputs that never change.
    """

    dtypes = frozenset({"fp32", "tf32", "fp64", "fp16", "bf16"})

    def __init__(self) -> None:
        self.found = False
        self._first: torch.Tensor | None = None
        self._runs = False

    def begin(self, case: Case) -> None:
        """A new set of inputs: a new first result."""
        self._first = None
        self._runs = case.test.startswith("gemm") and case.dtype in self.dtypes

    def see(self, output: torch.Tensor, right: torch.Tensor | None) -> None:
        """Compare with the first."""
        del right
        if self._runs and not self.found:
            self.found = self._wrong(output)
            if self._first is None:
                self._first = output.clone()

    def _wrong(self, output: torch.Tensor) -> bool:
        if self._first is None:
            return False
        eps = EPSILON_DOUBLE if output.dtype is torch.float64 else EPSILON
        wide = torch.float64 if output.dtype is torch.float64 else torch.float32
        return bool(((self._first.to(wide) - output.to(wide)).abs() > eps).any())


class SelfCompareNan(SelfCompare):
    """DCGM's diagnostic plugin: gpu-burn's comparison in half, single and double precision, and it counts NaN."""

    def _wrong(self, output: torch.Tensor) -> bool:
        return bool(torch.isnan(output).any()) or super()._wrong(output)


class NormCompare:
    """RVS with its consistency check switched on: the relative Frobenius norm of (previous result - this one) above 0.

    Its shipped examples judge the rate; the check is an option. A persistent fault cancels, a NaN norm is not above 0.
    """

    dtypes = frozenset({"fp32", "fp64", "fp16", "bf16", "fp8e4m3", "fp8e4m3fnuz", "fp8e5m2", "fp8e5m2fnuz"})

    def __init__(self) -> None:
        self.found = False
        self._last: torch.Tensor | None = None
        self._runs = False
        self._dtype = ""

    def begin(self, case: Case) -> None:
        """A new set of inputs: nothing before it."""
        self._last = None
        self._dtype = case.dtype
        self._runs = case.test.startswith("gemm") and case.dtype in self.dtypes

    def see(self, output: torch.Tensor, right: torch.Tensor | None) -> None:
        """Compare with the one before."""
        del right
        if self._runs and not self.found:
            wide = output.to(torch.float64)
            if self._last is not None:
                self.found = bool(
                    torch.linalg.vector_norm(self._last - wide) / torch.linalg.vector_norm(self._last) > 0
                )
            self._last = wide.clone()


class NormAndAccuracy(NormCompare):
    """RVS with every check switched on: also single and double precision against a product computed on the host.

    The largest relative error must stay below ten machine epsilons. It exists for SGEMM and DGEMM only; NaN is not
    larger than anything. No shipped configuration that we know of turns it on: a reference of one 8640³ product takes
    the host longer than the GPU's whole test.
    """

    checked = frozenset({"fp32", "fp64"})

    def see(self, output: torch.Tensor, right: torch.Tensor | None) -> None:
        """Compare with the one before and with the reference."""
        super().see(output, right)
        if self._runs and not self.found and right is not None and self._dtype in self.checked:
            error = ((right - output) / right).abs()
            self.found = bool((error > ACCURACY_EPSILONS * torch.finfo(output.dtype).eps).any())


class XorVote:
    """An ablation of ours: the same tests and votes, with an XOR of all 32-bit words in place of the weighted sum."""

    def __init__(self) -> None:
        self.found = False

    def begin(self, case: Case) -> None:
        """Nothing to prepare."""

    def see(self, output: torch.Tensor, right: torch.Tensor | None) -> None:
        """Dissents if its hash differs from that of the healthy majority."""
        if right is not None and not self.found:
            self.found = _xor(output) != _xor(right)


class ScalarVote:
    """An ablation of ours: the same tests and votes, with the float32 mean of a result as its fingerprint."""

    def __init__(self) -> None:
        self.found = False

    def begin(self, case: Case) -> None:
        """Nothing to prepare."""

    def see(self, output: torch.Tensor, right: torch.Tensor | None) -> None:
        """Dissents if its mean differs from that of the healthy majority; NaN differs from every number."""
        if right is not None and not self.found:
            mine, other = float(output.to(torch.float32).mean()), float(right.to(torch.float32).mean())
            self.found = mine != other and not (math.isnan(mine) and math.isnan(other))


def _xor(tensor: torch.Tensor) -> int:
    raw = raw_bytes(tensor).cpu().numpy()
    padded = np.pad(raw, (0, -len(raw) % 4))
    return int(np.bitwise_xor.reduce(padded.view(np.uint32)))


def slow_outliers(rates: Mapping[str, float]) -> tuple[str, ...]:
    """gpu-fryer: the GPUs whose FLOP rate is more than 10 % below the best one's. It reads no result back.

    Args:
        rates: GPU → FLOP per second.
    """
    best = max(rates.values())
    return tuple(gpu for gpu, rate in rates.items() if rate < (1 - RATE_TOLERANCE) * best)


PEERS: Mapping[str, type[Rule]] = {
    "gpu-burn": SelfCompare,
    "dcgm-diagnostic": SelfCompareNan,
    "rvs": NormCompare,
}
"""By name; gpu-fryer looks at rates only, see `slow_outliers`."""
OPTIONAL_PEERS: Mapping[str, type[Rule]] = {"rvs-all-checks": NormAndAccuracy}
"""What a peer could see with options that nobody ships: published, but not what the factor of two is measured against.
"""
ABLATIONS: Mapping[str, type[Rule]] = {"xor": XorVote, "scalar": ScalarVote}
