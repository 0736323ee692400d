"""Which faults are planted how often, with which weights. Pure; the table of models is `burnin.inject.FAULTS`."""

import random
from dataclasses import dataclass
from fnmatch import fnmatchcase

from burnin.coverage.host import DATAPATHS, GPUS
from burnin.inject import FAULTS
from burnin.session import round_seed
from burnin.spec import Case, Inject

WEIGHTS = {
    "F01": 15, "F02": 12, "F03": 15, "F04": 10, "F05": 6, "F06": 8, "F07": 8, "F08": 6, "F09": 3, "F10": 3, "F11": 4,
    "F12": 1, "F13": 3,
}  # fmt: skip
"""Relative weights of the models in silent corruption of results; gate-level studies put bursts of one lane first."""
SETS = {"F14": "memory", "F15": "memory", "F16": "link", "F17": "link", "F18": "link"}
"""Models outside the weighted sum."""
BY_NATURE = {"F01": ("persistent",), "F02": ("intermittent",)}
"""Models that exist in one form only; all others in both."""
FORMS = ("persistent", "intermittent")
INTERMITTENT_RATE = 0.5
"""Of launches: half of the trials are faults that come and go often enough to fire in a run; rarer ones are a matter of
time, see `burnin.verdict.chance.fires`."""
WORLDS = 2
"""Seeds of inputs over which trials are spread: healthy results are computed once for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One planted fault."""

    fault: str
    """The model with its variant: `F11.rows`."""
    form: str
    inject: Inject
    unit: str | None
    world: int

    @property
    def model(self) -> str:
        """The model without its variant."""
        return self.fault.partition(".")[0]


def trials(seed: int, *, per_form: int) -> tuple[Trial, ...]:
    """The trials of a run: every variant of every model in its forms, `per_form` times.

    Two thirds of it are enough where there is no choice of datapaths.

    The datapath in which a fault of the arithmetic sits goes round; GPU, lane, bit and tile are drawn.
    """
    planned = []
    for fault, row in FAULTS.items():
        model = fault.partition(".")[0]
        if model not in WEIGHTS and model not in SETS:
            continue  # a broken harness, not a broken GPU: see `benign`
        for form in BY_NATURE.get(model, FORMS):
            rng = random.Random(round_seed(seed, "coverage", fault, form))  # noqa: S311 - repeatable, no secret
            for number in range(per_form if row.in_arithmetic else -(-2 * per_form // len(DATAPATHS))):
                rate = 1.0 if form == "persistent" or model in BY_NATURE else INTERMITTENT_RATE
                planted = Inject(gpu=rng.randrange(GPUS), fault=fault, rate=rate, seed=rng.getrandbits(32))
                unit = DATAPATHS[number % len(DATAPATHS)] if row.in_arithmetic else None
                planned.append(Trial(fault=fault, form=form, inject=planted, unit=unit, world=number % WORLDS))
    return tuple(planned)


def left_out(case: Case, without: tuple[str, ...]) -> bool:
    """Whether a pattern names the test (`sfu`), the case (`gemm.exact/bf16 library*`) or its dtype (`*/fp8*`)."""
    names = (case.test, f"{case.test}/{case.name}", f"{case.test}/{case.dtype}")
    return any(fnmatchcase(name, pattern) for name in names for pattern in without)
