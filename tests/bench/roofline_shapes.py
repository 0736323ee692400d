"""Which products `bench_roofline.py` measures, of which class each is, and which the fit may not see.

The split is a rule, not a choice: a shape is held out by the hash of its name. A held-out shape is seen once its error
was printed, though, and whoever changes the model then has seen it. So there is a third set, `fresh`, drawn from a
seed: none of the others is in it, no fit takes it, and its score is of shapes that nobody had looked at.
"""

import hashlib
import math
import random
from dataclasses import dataclass, replace

HELD_OUT = 0.6
"""Share of the shapes that only the score sees."""

SQUARES = (256, 512, 768, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 10240, 12288, 16384)
LAYERS = (
    *((4096, 12288), (4096, 4096), (4096, 22016), (11008, 4096)),  # n, k swapped where a layer narrows: 7 G parameters
    *((8192, 10240), (8192, 8192), (8192, 57344), (28672, 8192)),  # 70 G parameters
    *((5120, 5120), (2048, 8192)),
)
"""(k, n) of layers of language models."""
TOKENS = (16, 128, 1024, 4096, 8192)
IRREGULAR = (  # (m, n, k)
    *((1024, 1024, 65536), (256, 256, 131072), (512, 4096, 16384), (65536, 512, 512), (16384, 1024, 4096)),
    *((1000, 1000, 1000), (1320, 2040, 4104), (2112, 4224, 1056), (3000, 3000, 3000), (3840, 5160, 4096)),
    *((4224, 4096, 4096), (4352, 4096, 4096), (777, 2056, 4096), (100, 10000, 5000), (8200, 8200, 8200)),
    *((33792, 128, 2048), (64, 64, 4096), (192, 28672, 8192), (20000, 256, 1024), (6000, 7000, 800)),
    *((1023, 2049, 777), (4095, 4095, 4095), (2047, 2050, 2049), (4100, 4100, 4100), (5001, 3001, 2002)),
    *((8191, 8192, 8190), (1111, 2222, 3333), (3003, 1500, 1004), (7681, 4097, 513), (2500, 2500, 10002)),
    *((4096, 4096, 4097), (8192, 4096, 1025), (2049, 4097, 4095), (6001, 2003, 3001), (1500, 9000, 2999)),
    *((4096, 4096, 4098), (3002, 6002, 2050), (5000, 2502, 1002), (4096, 4096, 4100), (2052, 8196, 1028)),
)
DATA = ("normal", "zeros", "ones", "integers", "uniform", "bits")
"""Kinds of operand values: -2 ... 2, 0 ... 1, and random finite bit patterns are the last three."""
FEW_SQUARES = (1024, 2048, 4096, 8192)
FEW_TOKENS = (128, 4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One product to measure."""

    kind: str
    """`square`, `llm` or `irregular`."""
    dtype: str
    m: int
    n: int
    k: int
    data: str = "normal"
    """Kind of operand values: what they draw differs."""

    @property
    def name(self) -> str:
        """Stable and readable, MxNxK."""
        return f"{self.dtype} {self.m}x{self.n}x{self.k}" + ("" if self.data == "normal" else f" {self.data}")


def wanted() -> tuple[Wanted, ...]:
    """All products: bf16 in every shape, the other dtypes in some; those of 8 bits where rows are aligned."""
    shapes = [("square", edge, edge, edge) for edge in SQUARES]
    shapes += [("llm", tokens, n, k) for k, n in LAYERS for tokens in TOKENS]
    shapes += [("irregular", *shape) for shape in IRREGULAR]
    found = [Wanted(kind=kind, dtype="bf16", m=m, n=n, k=k) for kind, m, n, k in shapes]
    for dtype, grain in (("fp16", 1), ("fp8e4m3", 16), ("int8", 16)):
        few = [(kind, m, n, k) for kind, m, n, k in shapes if _few(kind, m, n, k)]
        aligned = [(kind, m, n, k) for kind, m, n, k in few if not (m % grain or n % grain or k % grain)]
        found += [Wanted(kind=kind, dtype=dtype, m=m, n=n, k=k) for kind, m, n, k in aligned]
    for dtype in ("tf32", "fp32", "fp64"):
        found += [Wanted(kind="square", dtype=dtype, m=edge, n=edge, k=edge) for edge in (1024, 2048, 4096)]
    found.append(Wanted(kind="square", dtype="tf32", m=8192, n=8192, k=8192))
    found.append(Wanted(kind="llm", dtype="fp32", m=4096, n=4096, k=14336))
    found += [Wanted(kind="data", dtype="bf16", m=8192, n=8192, k=8192, data=data) for data in DATA if data != "normal"]
    return tuple({one.name: one for one in reversed(found)}.values())[::-1]


def _few(kind: str, m: int, n: int, k: int) -> bool:
    """Some of the shapes, for the dtypes that are not measured in all."""
    match kind:
        case "square":
            return m in FEW_SQUARES
        case "llm":
            return m in FEW_TOKENS and k in {4096, 8192}
        case _:
            return (m + n + k) % 3 > 0


def held_out(name: str) -> bool:
    """Whether only the score may see a product, by the hash of its name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) < HELD_OUT * 2**32


FRESH_SEED, FRESH_STRIDE = 20261130, 3
"""Of the set that nobody has looked at: another seed is another set; one sibling of every third product."""
FRESH_SPREAD = 0.4
"""By how much, as a logarithm, a size of a sibling may differ."""
DRAWS_MAX = 100
"""Of a sibling, until there is one that is in no set."""
GRAIN_MAX = 64
"""Largest power of two that a size keeps: how rows are aligned is what a class of shapes is about."""


def fresh(seed: int = FRESH_SEED) -> tuple[Wanted, ...]:
    """About 60 products in the proportions of `wanted`, none of them in it: siblings of its shapes, drawn anew."""
    rng = random.Random(seed)  # noqa: S311 - shapes, no secret
    plain = sorted((one for one in wanted() if one.data == "normal"), key=lambda one: (one.dtype, one.kind, one.name))
    taken = {one.name for one in wanted()}
    found: dict[str, Wanted] = {}
    for one in plain[rng.randrange(FRESH_STRIDE) :: FRESH_STRIDE]:
        drawn = (_sibling(one, rng) for _ in range(DRAWS_MAX))
        sibling = next(other for other in drawn if other.name not in taken | found.keys())
        found[sibling.name] = sibling
    return tuple(found.values())


def _sibling(one: Wanted, rng: random.Random) -> Wanted:
    """A product of the same class: other sizes, as even or odd as before, square if it was."""
    if one.kind == "square":
        edge = _near(one.m, rng)
        return replace(one, m=edge, n=edge, k=edge)
    return replace(one, m=_near(one.m, rng), n=_near(one.n, rng), k=_near(one.k, rng))


def _near(size: int, rng: random.Random) -> int:
    """Another size with the same largest power of two in it, as far as `GRAIN_MAX`."""
    grain = math.gcd(size, GRAIN_MAX)
    near = size * math.exp(rng.uniform(-FRESH_SPREAD, FRESH_SPREAD)) / grain
    return grain * (max(1, round(near)) if grain == GRAIN_MAX else 2 * int(near / 2) + 1)
