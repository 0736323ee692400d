"""What the health counters of a run amount to, as its own test `health`. Pure, torch-free."""

from collections.abc import Mapping
from dataclasses import replace

from burnin.spec import Verdict
from burnin.telling.result import NotRun, State
from burnin.verdict.evidence import Injury
from burnin.verdict.health import Counters, compare


def checked(
    state: State, before: Mapping[str, Counters], after: Mapping[str, Counters], *, required: bool, named: bool
) -> None:
    """Compare the counters and write what they say into the state of the run.

    Args:
        state: of the run.
        before: GPU → its counters when the run began.
        after: the same at its end; GPUs that did not answer are missing.
        required: whether there is no verdict where nothing can be read.
        named: whether the test was asked for by its name, which is as good as required.
    """
    unread = [d for d in state.devices if d.gpu in after and not after[d.gpu].source]
    sources = sorted({counters.source for counters in after.values()})
    injuries: list[Injury] = []
    for device in state.devices:
        bad, look = compare(before.get(device.gpu), after.get(device.gpu))
        injuries += [Injury(gpu=device.gpu, why=why) for why in bad]
        state.notes += [f"GPU {device.index}: {why}" for why in look]
    state.evidence = replace(state.evidence, injuries=tuple(injuries))
    if injuries:
        state.own["health"] = (Verdict.FAIL, injuries[0].why)
    elif not after:  # the deaths are the verdict
        state.own["health"] = (Verdict.NOT_JUDGED, "no process was left to read counters with")
    elif unread:
        why = f"nothing to read the counters of GPU {unread[0].index} with: install nvidia-ml-py or nvidia-smi"
        why = "this kernel has no EDAC counters" if state.backend == "cpu" else why
        state.not_run.append(NotRun(test="health", why=why, required=required or named))
    elif len(after) < len(state.devices):
        gone = next(device.index for device in state.devices if device.gpu not in after)
        state.own["health"] = (Verdict.NOT_JUDGED, f"the counters of GPU {gone} were not read: its process is gone")
    else:
        state.own["health"] = (Verdict.PASS, f"no new uncorrectable error ({', '.join(sources)})")


def counted_from(saved: Mapping[str, Counters], now: Mapping[str, Counters]) -> dict[str, Counters]:
    """What to compare with at the end of a run that goes on: the counters of its beginning.

    Where they are higher than now, the GPU or its driver was reset in between: then those of now.
    """
    return {
        gpu: saved[gpu] if gpu in saved and _grown(saved[gpu], counters) else counters for gpu, counters in now.items()
    }


def _grown(saved: Counters, now: Counters) -> bool:
    pairs = ((saved.uncorrectable_total, now.uncorrectable_total), (saved.correctable_total, now.correctable_total))
    return saved.source == now.source and all(was is None or is_ is None or was <= is_ for was, is_ in pairs)
