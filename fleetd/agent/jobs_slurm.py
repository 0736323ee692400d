"""Which Slurm job a process belongs to, from the files that the kernel shows of it.

The job id comes from the control group, which Slurm makes and a user cannot change; where Slurm uses none, from the
environment. The account is in the environment only, which the user may have changed, and which only root and the user
may read: it is a label, no proof. Without the environment the user is the owner of the process.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fleetd.model.ids import GpuId
from fleetd.model.job import GpuJob

PIDS_MAX = 64
"""Processes of one GPU that are looked at."""
USERS_MAX = 4
"""Users of one GPU that are told; the rest of a GPU that so many share is left out."""
_READ_MAX = 1 << 18
_LABEL_MAX = 64
# …/slurm/uid_1000/job_4711/step_0 (cgroup v1), …/system.slice/slurmstepd.scope/job_4711/step_0/user (v2)
_CGROUP = re.compile(rb"/[^/\n]*slurm[^/\n]*/(?:uid_\d+/)?job_(\d{1,10})(?=[/\n]|$)")
_NAMES = {b"SLURM_JOB_ID": "job_id", b"SLURM_JOB_USER": "user", b"SLURM_JOB_ACCOUNT": "account"}


def slurm_jobs(
    proc: Path, pids: Mapping[GpuId, Sequence[int]], user_name: Callable[[int], str | None]
) -> tuple[GpuJob, ...]:
    """The Slurm jobs of the processes that hold each GPU; blocks for as long as /proc and `user_name` do.

    A process that has ended, belongs to no job or cannot be read has none; nothing is raised.
    """
    found: dict[tuple[GpuId, str], GpuJob] = {}
    for gpu, held_by in sorted(pids.items()):
        for pid in held_by[:PIDS_MAX]:
            job = _job(proc / str(pid), gpu, user_name)
            if job is not None and job.job_id is not None and (gpu, job.job_id) not in found:
                found[gpu, job.job_id] = job
            if sum(one[0] == gpu for one in found) >= USERS_MAX:
                break
    return tuple(found.values())


def _job(process: Path, gpu: GpuId, user_name: Callable[[int], str | None]) -> GpuJob | None:
    told = _environment(_read(process / "environ"))
    by_cgroup = _CGROUP.search(_read(process / "cgroup"))
    if by_cgroup is not None:
        job_id = by_cgroup[1].decode("ascii")
        if told.get("job_id") != job_id:
            told = {}  # of another job, or made up
        user = told.get("user") or _owner(process, user_name)
        return GpuJob(gpu=gpu, scheduler="slurm", job_id=job_id, user=user, account=told.get("account"))
    if re.fullmatch(r"[0-9]{1,10}", told.get("job_id", "")):
        return GpuJob(gpu=gpu, scheduler="slurm", **told)  # the names are those of _NAMES
    return None


def _environment(text: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in text.split(b"\0"):
        name, _, value = entry.partition(b"=")
        label = value.decode("utf-8", errors="replace")
        if name in _NAMES and 0 < len(label) <= _LABEL_MAX and label.isprintable():
            found[_NAMES[name]] = label
    return found


def _owner(process: Path, user_name: Callable[[int], str | None]) -> str | None:
    try:
        return user_name(process.stat().st_uid)
    except OSError:  # it has ended
        return None


def _read(path: Path) -> bytes:
    """The beginning of a file; nothing when it cannot be read: the process has ended, or is not ours to see."""
    try:
        with path.open("rb", buffering=0) as file:
            parts, size = [], 0
            while size < _READ_MAX and (part := file.read(_READ_MAX - size)):
                parts.append(part)
                size += len(part)
            return b"".join(parts)
    except OSError:
        return b""
