"""A workload of which one GPU is slow: the first that comes. Imported by child processes."""

from dataclasses import replace
from pathlib import Path

from fake_workloads import Honest

from burnin.spec import Ballot, Case
from burnin.workloads import Context


class Sluggish(Honest):
    """Right results, at half the speed where nobody has been before; every run has a directory of its own."""

    def __init__(self) -> None:
        self._slow: bool | None = None

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        del ctx
        name = "c_flops_per_second"
        return (Case(test="rate", name="c", dtype="fp32", exact=True, rate_name=name, slow_below=0.9),)

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        if self._slow is None:
            try:
                Path("was-here").touch(exist_ok=False)
                self._slow = True
            except FileExistsError:
                self._slow = False
        ballot = super().ballot(ctx, case, iteration=iteration, seed=seed, launches=launches)
        return replace(ballot, elapsed_s=2.0 if self._slow else 1.0)
