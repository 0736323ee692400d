"""What the deaths of child processes say of their GPUs. Pure and torch-free; `judge` reads it."""

from collections import defaultdict

from burnin.verdict.evidence import Death, DeathKind, Evidence

ECC_CRASH = "uncorrectable ECC"
"""In a crash's text: the driver itself says that the memory is bad. Other crashes are no proof against a chip: a launch
failure or an illegal address is more often a bug."""


def told(death: Death) -> str:
    """A death in words."""
    return f"its process {'crashed' if death.kind is DeathKind.CRASH else 'hung'}: {death.why}"


def memory_crashes(evidence: Evidence) -> dict[str, str]:
    """GPU → the crash that names its memory."""
    return {death.gpu: death.why for death in reversed(evidence.deaths) if ECC_CRASH in death.why}


def unresponsive(evidence: Evidence) -> dict[str, str]:
    """GPU → why it does not respond: it hung twice, in tests that end on most other GPUs.

    A test in which most GPUs hang (two at least) hangs by itself: it says nothing of any of them.
    """
    hung: dict[str, set[str]] = defaultdict(set)
    for death in evidence.deaths:
        if death.kind is DeathKind.HANG:
            hung[death.test].add(death.gpu)
    dead = {test for test, gpus in hung.items() if len(gpus) > 1 and 2 * len(gpus) > len(evidence.devices)}
    times: dict[str, list[str]] = defaultdict(list)
    for death in evidence.deaths:
        if death.kind is DeathKind.HANG and death.test not in dead:
            times[death.gpu].append(death.why)
    return {gpu: f"hung twice: {why[0]}; {why[1]}" for gpu, why in times.items() if len(why) > 1}
