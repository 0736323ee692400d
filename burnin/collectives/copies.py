"""`copy`: host to device and back through pinned memory, and every ordered pair of GPUs, alone and all at once.

The hash of what arrived must be the hash of what was sent, taken where it was sent.
"""

from contextlib import AbstractContextManager, nullcontext

import torch

from burnin.checksum import checksum
from burnin.collectives.checks import FROM_HOST, TO_HOST, Found, Links, fabric_of, source
from burnin.inject import Injector
from burnin.keys import derive
from burnin.seed import fill_bits
from burnin.spec import Ballot, Case
from burnin.workloads import Context
from burnin.workloads.launches import Stopwatch, injector_of, poison

WORDS_CUDA, WORDS_CPU = 16 << 20, 1 << 10
"""32-bit words of one copy."""
COLUMNS = 64
CASES = ("host pinned", "pairs alone", "pairs at once")


class Copy(Links):
    """See the module."""

    test = "copy"

    def __init__(self) -> None:
        self._injector: Injector | None = None

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        """Return the three cases; see `burnin.workloads.Workload`."""
        del ctx
        return tuple(
            Case(
                test=self.test,
                name=name,
                dtype="bytes",
                exact=True,
                rate_name=f"copy_{name.replace(' ', '_')}_bytes_per_second",
            )
            for name in CASES
        )

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """Copy `launches` times; see `burnin.workloads.Workload`.

        Raises:
            StuckError: A copy did not end in time.
            LostError: Another rank left.
            RuntimeError: Nothing was copied.
        """
        injector = self._injector = injector_of(ctx, self._injector)
        watch, found = Stopwatch(ctx.device), Found(case=case, iteration=iteration, seed=seed)
        if case.name == "host pinned":
            nbytes = _host(ctx, injector, watch, found, launches)
        else:
            nbytes = _pairs(ctx, injector, watch, found, launches)
        return found.ballot(nbytes=nbytes, elapsed_s=watch.elapsed_s())


def _words(ctx: Context, device: torch.device, seed: int, *names: str | int, pinned: bool = False) -> torch.Tensor:
    """Random bits of one transfer, on a device or in the host's memory."""
    count = WORDS_CUDA if ctx.backend == "cuda" else WORDS_CPU
    made = torch.empty(count, dtype=torch.int32, device=device, pin_memory=pinned)
    with _current(device):
        fill_bits(made, derive(seed, "copy", *names))
    return made


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Kernels run on the current GPU, wherever their data lie: make it the one that has them."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _sum_there(tensor: torch.Tensor, seed: int) -> int:
    """The checksum of data on another GPU, computed there."""
    with _current(tensor.device):
        return checksum(tensor, seed)


def _blank(target: torch.Tensor, seed: int) -> int:
    """The checksum of a target to which nothing was copied; poisons it."""
    poison(target)
    return checksum(target, seed)


def _require_copies(sums: set[int], blank: int, found: Found, launches: int) -> None:
    """Nothing that arrives, from nowhere, is no link that damages data.

    Raises:
        RuntimeError: Every target is as it was poisoned.
    """
    if sums == {blank}:
        raise RuntimeError(f"none of {launches} launches of {found.case.name} wrote its target: nothing was copied")


def _host(ctx: Context, injector: Injector, watch: Stopwatch, found: Found, launches: int) -> int:
    """Down to the device and back up; returns the bytes of one launch."""
    pinned = ctx.device.type == "cuda"
    sent = _words(ctx, torch.device("cpu"), found.seed, "host", pinned=pinned)
    there, back = torch.empty_like(sent, device=ctx.device), torch.empty_like(sent, pin_memory=pinned)
    right, blank, sums = checksum(sent, found.seed), _blank(there, found.seed), set[int]()
    for _ in range(launches):
        poison(there)
        poison(back)
        watch.start()
        there.copy_(sent, non_blocking=True)
        watch.stop()
        found.fired += injector.hit(there.view(-1, COLUMNS), op=FROM_HOST)
        down = checksum(there, found.seed)
        watch.start()
        back.copy_(there, non_blocking=True)
        watch.stop()
        if pinned:
            torch.cuda.synchronize(ctx.device)
        up = checksum(back, found.seed)
        # What came down wrong goes up wrong: only what changes on the way up counts against it.
        found.launch({FROM_HOST: int(down != right), TO_HOST: int(up != down)}, derive(0, down, up))
        sums |= {down, up}
        ctx.alive()
    _require_copies(sums, blank, found, launches)
    return 2 * sent.nbytes


def _pairs(ctx: Context, injector: Injector, watch: Stopwatch, found: Found, launches: int) -> int:
    """From every other rank; returns the bytes of one launch."""
    fabric = fabric_of(ctx)
    others = [rank for rank in range(fabric.world) if rank != fabric.rank]
    devices = getattr(fabric, "device_of", lambda _: ctx.device)
    sent = {rank: _words(ctx, devices(rank), found.seed, rank) for rank in range(fabric.world)}
    right = {rank: _sum_there(sent[rank], found.seed) for rank in others}
    outs = {rank: torch.empty(len(sent[rank]), dtype=torch.int32, device=ctx.device) for rank in others}
    blank, seen = _blank(outs[others[0]], found.seed), set[int]()
    for _ in range(launches):
        for out in outs.values():
            poison(out)
        watch.start()
        fabric.pull(outs, sent.__getitem__, alone=found.case.name == "pairs alone")
        watch.stop()
        fabric.settle(ctx.alive)
        wrong, sums, struck = dict[str, int](), list[int](), False
        for rank, out in outs.items():
            struck |= injector.hit(out.view(-1, COLUMNS), op=source(fabric, rank))
            sums.append(checksum(out, found.seed))
            wrong[source(fabric, rank)] = int(sums[-1] != right[rank])
        found.fired += struck
        found.launch(wrong, derive(0, *sums))
        seen.update(sums)
        ctx.alive()
    _require_copies(seen, blank, found, launches)
    return sum(out.nbytes for out in outs.values())
