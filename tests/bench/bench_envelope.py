"""Random envelopes, compiled and checked at 1,000 windows each: `python tests/bench/bench_envelope.py [COUNT] [SEED]`.

Prints how many were compiled and refused, the worst ratio of what the buckets let through to the allowance, and the
time it took.
Exit code 1 if that ratio is above 1, or a refusal has no reason in the rows.
"""

import itertools
import random
import sys
import time

from fleetd.core.power.checker import check_buckets, log_spaced
from fleetd.core.power.compiler import Infeasible, compile_envelope
from fleetd.model.envelope import Envelope, Interpolation, Lease, Margin, Semantics, Window


def draw(rng: random.Random) -> Envelope:
    """One envelope of 1 to 8 rows; the ratios of most fall with the window, since others are refused at sight."""
    count = rng.randint(1, 8)
    over = sorted(10 ** rng.uniform(-6, 2) for _ in range(count))
    ratios = [rng.uniform(0.3, 3.0) for _ in range(count)]
    if rng.random() < 0.8:
        ratios.sort(reverse=True)
    return Envelope(
        name="random",
        reason="bench",
        owner="bench",
        vendor="amd",
        part="MI350X",
        tbp_watts=rng.uniform(300, 1500),
        interpolation=rng.choice(list(Interpolation)),
        windows=tuple(
            Window(over_s=w, max_ratio=m, semantics=Semantics.WINDOW_AVG, source=f"row{n}", label=f"{w:g}s")
            for n, (w, m) in enumerate(zip(over, ratios, strict=True))
        ),
        margin=Margin(model=rng.uniform(0, 0.2)),
        safe_cap_watts=1e-9,
        lease=Lease(ttl_s=0.2, grace_s=0.05),
    )


def contradicts(envelope: Envelope) -> bool:
    """Whether two neighbouring rows cannot both be meant."""
    rows = [(row.over_s, row.max_ratio or 0.0) for row in envelope.windows]
    return any(b[1] > a[1] or b[0] * b[1] <= a[0] * a[1] for a, b in itertools.pairwise(rows))


def main(count: int, seed: int) -> int:
    """Run; returns the exit code."""
    rng, began = random.Random(seed), time.perf_counter()  # noqa: S311 - a seed, so that a failure can be repeated
    compiled = refused = wrongly = 0
    worst = 0.0
    for _ in range(count):
        envelope = draw(rng)
        try:
            buckets = compile_envelope(envelope)
        except Infeasible:
            refused += 1
            wrongly += not contradicts(envelope)
            continue
        compiled += 1
        first, last = envelope.windows[0].over_s, envelope.windows[-1].over_s
        worst = max(worst, check_buckets(envelope, buckets, log_spaced(first / 10, last * 100, 1000)).ratio)
    seconds = time.perf_counter() - began
    out = sys.stdout.write
    out(f"{count} envelopes (seed {seed}): {compiled} compiled, {refused} refused, {wrongly} of them wrongly\n")
    out(f"worst ratio to (1 - margin)·B over 1,000 windows each: {worst:.12f}; {seconds:.1f} s\n")
    return int(worst > 1 or wrongly > 0)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:3]]
    sys.exit(main(*(numbers + [10_000, 1][len(numbers) :])))
