"""THE table of tests: what each one does, where it exists, and how much work makes its verdict worth anything.

Torch-free. A workload is named as "module:Class" and imported inside the child process only.
"""

from collections.abc import Iterable, Mapping

from burnin.declaration import BACKENDS, Declaration, Effort, computed, own
from burnin.levels import LADDER, SELF
from burnin.levels import LEVELS as ALL
from burnin.spec import SpecError

__all__ = ["ALWAYS", "BACKENDS", "LEVELS", "SELFTEST", "SELFTEST_WORKLOAD", "TESTS", "Declaration", "Effort", "chosen"]

LEVELS = LADDER
"""The levels that prove something, from the shortest to the longest; `burnin.levels` has them all."""

SELFTEST = "selftest"
SELFTEST_WORKLOAD = "gemm.exact"
"""The test whose workload the self-test plants its faults in."""

ALWAYS = (SELFTEST, "health")
"""These run whatever was chosen: no verdict is worth anything without them."""


_SMALL = Effort(launches=20, rounds=2)
"""For devices that are computed on a CPU."""
_FEW = Effort(launches=4, rounds=1)
"""The same for tests of many cases."""

_EIGHT = Effort(launches=8, rounds=1)
"""For launches of two kinds in turn."""

_TWO = "two GPUs, and a torch with NCCL, RCCL or gloo"

TESTS: Mapping[str, Declaration] = {
    declaration.id: declaration
    for declaration in (
        own(
            SELFTEST,
            "faults planted on one GPU must be found there, and a clean rerun must be clean",
            first=SELF,
            required=BACKENDS,
            needs="the workload of gemm.exact",
        ),
        own(
            "health",
            "error counters before and after: a new uncorrectable error fails the GPU whatever the numbers said",
            first=SELF,
            required=("cuda", "sim"),
            needs="the vendor's management library or command",
        ),
        own(
            "hostcpu",
            "the golden computed on two CPU cores must be equal, or no proof can be trusted",
            first=SELF,
            required=(),
            needs="two CPU cores",
        ),
        computed(
            "gemm.exact",
            "matrix products of integers, equal to a golden proved on the CPU",
            "burnin.workloads.gemm:GemmExact",
            exact=True,
            # One round at least: with a single GPU every case of every round is proved on the CPU, which takes longest.
            efforts={"cuda": Effort(launches=20, rounds=1, seconds=12.0), "cpu": _SMALL, "sim": _SMALL},
            idle=True,
        ),
        computed(
            "gemm.vote",
            "matrix products of full-mantissa numbers, equal on all GPUs of a vote key and on every launch",
            "burnin.workloads.gemm:GemmVote",
            exact=False,
            # Fifty launches: new inputs and the host's work between two ballots are then 1 % of a ballot or less.
            efforts={"cuda": Effort(launches=50, rounds=2, seconds=8.0), "cpu": _SMALL, "sim": _SMALL},
            idle=True,
        ),
        computed(
            "gemm.pattern",
            "matrix products of bit patterns: checkerboards, inverses, walking bits, subnormals, toggles",
            "burnin.workloads.gemm:GemmPattern",
            exact=False,
            efforts={"cuda": Effort(launches=20, rounds=2), "cpu": _FEW, "sim": _FEW},
            first="quick",
            idle=True,
        ),
        computed(
            "gemm.smvote",
            "one tile on every multiprocessor, all equal and equal to the CPU's: names the one that is not",
            "burnin.workloads.units:SmVote",
            exact=True,
            efforts={"cuda": Effort(launches=20, rounds=1, seconds=2.0), "cpu": _FEW, "sim": _FEW},
            idle=True,
        ),
        computed(
            "attention",
            "causal attention over sequences of many lengths, forward and backward; the library's forward",
            "burnin.workloads.attention:Attention",
            exact=False,
            efforts={"cuda": Effort(launches=20, rounds=1, seconds=4.0), "cpu": _FEW, "sim": _FEW},
            idle=True,
        ),
        computed(
            "int",
            "SHA-256's rounds, CRC-32C, 64-bit multiply-adds, set bits: equal to the CPU's",
            "burnin.workloads.integers:Integers",
            exact=True,
            efforts={"cuda": Effort(launches=20, rounds=1, seconds=1.0), "cpu": _FEW, "sim": _FEW},
            idle=True,
        ),
        computed(
            "sfu",
            "special functions, softmax, rmsnorm equal on all GPUs of a vote key; conversions equal to the CPU's",
            "burnin.workloads.sfu:Sfu",
            exact=False,
            efforts={"cuda": Effort(launches=20, rounds=2, seconds=4.0), "cpu": _FEW, "sim": _FEW},
            first="quick",
            idle=True,
        ),
        computed(
            "embedding",
            "bags gathered and gradients scattered in sorted order; integers equal to the CPU's",
            "burnin.workloads.embedding:Embedding",
            exact=False,
            efforts={"cuda": Effort(launches=20, rounds=1, seconds=4.0), "cpu": _FEW, "sim": _FEW},
            first="quick",
            idle=True,
        ),
        computed(
            "reduction",
            "columns of integers summed by a tree and by atomic additions, equal to the CPU's",
            "burnin.workloads.reduction:Reduction",
            exact=True,
            efforts={"cuda": Effort(launches=20, rounds=1, seconds=2.0), "cpu": _FEW, "sim": _FEW},
            first="quick",
            idle=True,
        ),
        computed(
            "eigh",
            "eigenvectors by the library: residual and orthogonality within bounds, equal on all GPUs of a vote key",
            "burnin.workloads.eigh:Eigh",
            exact=False,
            efforts={"cuda": Effort(launches=3, rounds=1), "cpu": _FEW, "sim": _FEW},
            first="qualify",
        ),
        computed(
            "inductor",
            "a graph compiled by torch.compile: near the uncompiled one, equal on all GPUs of a vote key",
            "burnin.workloads.inductor:Inductor",
            exact=False,
            efforts={"cuda": Effort(launches=20, rounds=1), "cpu": _FEW, "sim": _FEW},
            first="qualify",
            max_seconds=300.0,
            quiet_seconds=180.0,
            needs="a C++ compiler; on a GPU also triton",
            required=(),  # a compiler is a matter of the image, not of the host
        ),
        computed(
            "hbm",
            "marches over nearly all memory: addresses, inversions, spaced and random words, moved blocks",
            "burnin.workloads.memory:Hbm",
            exact=True,
            efforts={"cuda": Effort(launches=2, rounds=2), "cpu": _FEW, "sim": _FEW},
            first="qualify",
            max_seconds=600.0,
            needs="95 % of the memory of a GPU",
        ),
        computed(
            "copy",
            "copies from and to the host, and between every pair of GPUs, alone and at once: names the pair or the end",
            "burnin.collectives.copies:Copy",
            exact=True,
            efforts={"cuda": Effort(launches=4, rounds=2), "cpu": _FEW, "sim": _FEW},
            needs=_TWO,
            together=True,
        ),
        computed(
            "collective.exact",
            "five collectives of order-free integers, every rank's result known, algorithms and protocols swept",
            "burnin.collectives.reduce:CollectiveExact",
            exact=True,
            efforts={"cuda": Effort(launches=20, rounds=1), "cpu": _FEW, "sim": _FEW},
            needs=_TWO,
            together=True,
        ),
        computed(
            "collective.repro",
            "float reductions again and again: equal bits, or inside the bound of any order and recorded as such",
            "burnin.collectives.reduce:CollectiveRepro",
            exact=True,
            efforts={"cuda": Effort(launches=100, rounds=1), "cpu": _FEW, "sim": _FEW},
            first="quick",
            needs=_TWO,
            together=True,
        ),
        computed(
            "step",
            "a small training step, every operation's result equal on all GPUs of a vote key",
            "burnin.workloads.step:Step",
            exact=False,
            efforts={
                "cuda": Effort(launches=20, rounds=2, seconds=4.0),
                "cpu": Effort(launches=2, rounds=1),
                "sim": Effort(launches=2, rounds=1),
            },
            idle=True,
        ),
        computed(
            "overlap",
            "products, attention, integers and copies side by side: what each gives alone",
            "burnin.workloads.overlap:Overlap",
            exact=False,
            efforts={"cuda": Effort(launches=40, rounds=2, seconds=8.0), "cpu": _EIGHT, "sim": _EIGHT},
            first="qualify",
        ),
        computed(
            "overlap.links",
            "collectives beside products, attention and copies on every GPU: neither changes the other",
            "burnin.collectives.crowd:OverlapLinks",
            exact=True,
            efforts={"cuda": Effort(launches=20, rounds=2), "cpu": _FEW, "sim": _FEW},
            first="qualify",
            needs=_TWO,
            together=True,
        ),
        computed(
            "thermal",
            "cold, ramp, soak, cool: slices of other tests in each, equal on all GPUs and to the CPU's",
            "burnin.workloads.thermal:Thermal",
            exact=False,
            efforts={"cuda": Effort(launches=20, rounds=1), "cpu": _FEW, "sim": _FEW},
            first="qualify",
            max_seconds=900.0,
            needs="a thermometer, some minutes, and the power to heat every GPU at once",
            required=("cuda", "sim"),  # nothing tells how hot a CPU is
            common=False,
        ),
        computed(
            "pulse",
            "all GPUs step together between full load and none, 0.5 to 1000 times a second; each pulse is checked",
            "burnin.workloads.pulse:Pulse",
            exact=False,
            efforts={"cuda": Effort(launches=8, rounds=1), "cpu": _SMALL, "sim": _SMALL},
            first="qualify",
            max_seconds=600.0,
            needs="a grant of power: the whole host's, in phase",
            in_step=True,
            common=False,
        ),
        computed(
            "rate",
            "speed of products, memory and the host link: a GPU far below the median of at least three is slow",
            "burnin.workloads.rate:Rate",
            exact=False,
            efforts={"cuda": Effort(launches=20, rounds=3), "cpu": _FEW, "sim": _FEW},
            first="quick",
            common=False,
        ),
    )
}
"""Test id → declaration, in the order of execution."""


def chosen(level: str, tests: Iterable[str], table: Mapping[str, Declaration] = TESTS) -> tuple[Declaration, ...]:
    """The declarations of a run: the level's, or those named in `tests` in their place, and always `ALWAYS`.

    Raises:
        SpecError: The level or a test does not exist.
    """
    if level not in ALL:
        raise SpecError(f"--level {level!r}: no such level; there are: {', '.join(ALL)}")
    names = set(tests)
    unknown = sorted(names - set(table))
    if unknown:
        raise SpecError(f"--test {unknown[0]!r}: no such test; there are: {', '.join(table)}")
    return tuple(
        declaration
        for declaration in table.values()
        if declaration.id in ALWAYS or (declaration.id in names if names else level in declaration.levels)
    )
