"""Jobs that fail at once, one after the other, on one host: a dead GPU that looks idle draws and kills job after job.

What is counted is different jobs on one host. A job that failed on other hosts too, or jobs that fail fast on many
hosts (a broken image, a file system that is away), say nothing about this one. A suspicion costs a burn-in, no more.
"""

from fleetd.core.fleet import JobEnd
from fleetd.core.invariants import SERVING
from fleetd.core.lifecycle import Draft, line
from fleetd.core.limits import MAX_JOB_FAILURES, Jobs
from fleetd.model.event import JobEnded
from fleetd.model.host import FailedJob, Lifecycle

MAX_JOB_NAME = 120
"""Characters of a job's id that are kept."""


def ended(draft: Draft, event: JobEnded) -> None:
    """Judge the end of a job on a host."""
    limits, job = draft.policy.jobs, line(event.job, MAX_JOB_NAME)
    said = f"job {job} {'ended well' if event.ok else 'failed'} after {event.ran_seconds:.0f} seconds"
    if event.ok or limits is None or event.ran_seconds > limits.ran_at_most_seconds:
        draft.say(said)
        return
    if draft.host.state not in SERVING:
        # Not counted: a burn-in that runs beside them kills jobs too, and would bring itself about again and again.
        draft.say(f"{said}; the host is {draft.host.state}")
        return
    others = [f for f in draft.host.failed_jobs if f.job != job]  # one job counts once, however often it is restarted
    draft.set(failed_jobs=(*others, FailedJob(job=job, at_s=draft.now_s))[-MAX_JOB_FAILURES:])
    elsewhere = [
        end for end in draft.fleet.job_ends_since(draft.now_s - limits.within_seconds) if end.host != draft.host.name
    ]
    own = _own(draft, limits, elsewhere)
    if len(own) < limits.failures_at_least:
        draft.say(f"{said}: {len(own)} different jobs failed fast here alone")
        return
    said = f"{said}: {len(own)} different jobs failed fast here within {limits.within_seconds:g} seconds"
    failing, ending = _hosts_failing(limits, elsewhere)
    if failing > limits.elsewhere_max_ratio * ending:
        draft.say(f"{said}, and jobs fail fast on {failing} of {ending} other hosts too: no host is blamed")
        return
    draft.set(proof=None, failed_jobs=())  # what comes after the burn-in is counted anew
    draft.move(Lifecycle.SUSPECT, f"{said}, and not elsewhere")
    draft.notify(f"{said}, and not elsewhere: it may be drawing jobs and killing them", about="jobs")
    draft.burnin(limits.burnin, said, looks_again=True)


def _own(draft: Draft, limits: Jobs, elsewhere: list[JobEnd]) -> list[str]:
    """The jobs that failed fast on this host within the window, and on no other."""
    shared = {line(end.job, MAX_JOB_NAME) for end in elsewhere if end.failed}
    since_s = draft.now_s - limits.within_seconds
    return [f.job for f in draft.host.failed_jobs if f.at_s > since_s and f.job not in shared]


def _hosts_failing(limits: Jobs, elsewhere: list[JobEnd]) -> tuple[int, int]:
    """How many other hosts had a job that failed fast, and how many had one that ended at all."""
    fast = {end.host for end in elsewhere if end.failed and end.ran_seconds <= limits.ran_at_most_seconds}
    return len(fast), len({end.host for end in elsewhere})
