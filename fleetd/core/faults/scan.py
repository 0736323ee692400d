"""From an input to a judgement: the streaming scan of a log, and the judgement that documents share with it.

For a document (nvidia-smi -q, amd-smi JSON, …) call `judge(catalogue, observations, format=…)`; for a log feed bytes
to a `LogScan`.
"""

from collections.abc import Iterable, Sequence

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.incidents import Incidents
from fleetd.core.faults.observation import MAX_UNRECOGNISED, Observation, ScanResult, Unrecognised, worst


def judge(
    catalogue: Catalogue,
    observations: Iterable[Observation],
    *,
    format: str,  # noqa: A002 - the word of the command line and of the JSON
    unrecognised: Sequence[Unrecognised] = (),
    cannot_judge: str | None = None,
    notes: Sequence[str] = (),
) -> ScanResult:
    """Fold observations into findings and take the worst action of the roots.

    Args:
        catalogue: What the codes mean.
        observations: In the order of the input.
        format: Name of the input's format.
        unrecognised: What looked like trouble and matched nothing.
        cannot_judge: Why the input cannot be judged; findings are reported all the same.
        notes: Sentences for the operator.
    """
    incidents = Incidents(catalogue)
    for observation in observations:
        incidents.add(observation)
    findings = incidents.findings()
    roots = (finding.action for finding in findings if finding.role == "root")
    return ScanResult(
        format=format,
        findings=findings,
        action=None if cannot_judge else worst(*roots),
        unrecognised=tuple(unrecognised[:MAX_UNRECOGNISED]),
        unrecognised_total=len(unrecognised),
        cannot_judge=cannot_judge,
        notes=(*incidents.notes, *notes),
    )
