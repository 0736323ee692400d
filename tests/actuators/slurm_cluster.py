"""A real Slurm on the loopback: munged, slurmctld and slurmd of Debian's packages, in a folder of their own."""

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from fleetd.loopback import free_ports
from fleetd.system import RealClock
from tests.actuators.waiting import wait_until
from tests.stopping import stop

PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "squeue", "sbatch")
MISSING = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None]
REASON = (
    f"no {', '.join(MISSING)} (Debian: slurmctld slurmd slurm-client munge; `make deps` installs them)"
    if MISSING
    else "Slurm's daemons of a test run as root"
    if os.geteuid() != 0
    else ""
)
"""Why there can be no cluster here; empty: there can."""

_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire={requeue_s}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=1
SelectType=select/cons_tres
SlurmctldTimeout=300
SlurmdTimeout=300
MessageTimeout=30
KillWait=1
SchedulerParameters=batch_sched_delay=1,sched_interval=1
{more}
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports}] CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class SlurmCluster:
    """Start it with `with`; leaves no process behind."""

    def __init__(self, folder: Path, *, nodes: int = 3, more: str = "", requeue_s: int = 120) -> None:
        """Write the configuration; nothing runs yet.

        Args:
            folder: an existing folder of the cluster's own.
            nodes: how many, called h01, h02, ….
            more: further lines of slurm.conf.
            requeue_s: how long a requeued job waits at least before it starts again; Slurm's own default.
        """
        self.folder = folder
        self.names = [f"h{n:02d}" for n in range(1, nodes + 1)]
        self.conf = folder / "slurm.conf"
        self.environment = {
            "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin",
            "SLURM_CONF": str(self.conf),
            "LC_ALL": "C.UTF-8",
        }
        self._requeue_s = requeue_s
        ctld_port, *ports = free_ports(nodes + 1)
        self.write_conf(ctld_port=ctld_port, ports=ports, more=more)

    def write_conf(self, *, ctld_port: int, ports: list[int], more: str) -> None:
        self.conf.write_text(
            _CONF.format(
                folder=self.folder,
                host=socket.gethostname().partition(".")[0],
                ctld_port=ctld_port,
                requeue_s=self._requeue_s,
                ports=",".join(map(str, ports)),
                nodes=f"h[01-{len(self.names):02d}]",
                more=more,
            )
        )

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:  # half a cluster would stay
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        jobs = self.run("squeue", "-h", "-o", "%A").split()
        if jobs:
            self.run("scancel", "--full", *jobs)
        self._end()

    # ── daemons ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        (self.folder / "state").mkdir(exist_ok=True)
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o600)
        at = self.folder / "munge"
        self._do(
            *("munged", "--force", f"--key-file={key}", f"--socket={at}.sock", f"--pid-file={at}.pid"),
            *(f"--log-file={at}.log", f"--seed-file={at}.seed"),
        )
        self.start_controller()
        for name in self.names:
            self._do("slurmd", "-f", str(self.conf), "-N", name)
        wait_until(lambda: all(self.state(name) == "IDLE" for name in self.names), "all nodes are idle")

    def _end(self) -> None:
        for name in ("slurmctld", *(f"slurmd-{node}" for node in self.names), "munge"):
            self._stop(self.folder / f"{name}.pid")
        for pid in _steps_of(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_controller(self) -> None:
        """Start slurmctld; returns when it answers."""
        self._do("slurmctld", "-f", str(self.conf))
        wait_until(lambda: "UP" in self.run("scontrol", "ping"), "slurmctld answers")

    def stop_controller(self) -> None:
        """End slurmctld; it has saved its state."""
        self._stop(self.folder / "slurmctld.pid")

    def freeze_controller(self) -> Callable[[], None]:
        """Let slurmctld hang; returns what lets it go on."""
        pid = int((self.folder / "slurmctld.pid").read_text())
        stop(pid)
        return lambda: os.kill(pid, signal.SIGCONT)

    def _do(self, *words: str) -> None:
        subprocess.run(words, env=self.environment, check=True, capture_output=True, timeout=120)

    def _stop(self, pid_file: Path) -> None:
        try:
            pid = int(pid_file.read_text())
        except (OSError, ValueError):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGTERM)
        try:
            wait_until(lambda: not _alive(pid), f"{pid_file.stem} ends", seconds=15)
        except AssertionError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # ── questions and deeds of others ───────────────────────────────────────────────────────────────────────────────

    def run(self, *words: str) -> str:
        """Run a command; what it said on either channel, whatever its exit code."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=120, check=False, cwd=self.folder
        )
        return f"{done.stdout}{done.stderr}".strip()

    def show(self, node: str, field: str) -> str:
        """One field of a node; empty: it has none."""
        text = self.run("scontrol", "show", "node", node)
        pattern = r"^ +Reason=(.*)$" if field == "Reason" else rf"\b{field}=(\S*)"
        found = re.search(pattern, text, re.MULTILINE)
        return found[1] if found else ""

    def state(self, node: str) -> str:
        """The state of a node, such as `IDLE+DRAIN`."""
        return self.show(node, "State").replace("+NOT_RESPONDING", "")

    def drain(self, node: str, reason: str) -> None:
        """What a person does."""
        assert self.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}") == ""

    def resume(self, node: str) -> None:
        """What a person does."""
        assert self.run("scontrol", "update", f"NodeName={node}", "State=RESUME") == ""

    def submit(self, script: str, *options: str) -> str:
        """Submit a job; returns its id when it runs or has ended."""
        words = ("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", script)
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=120, check=True)
        job = done.stdout.strip()
        wait_until(lambda: self.job(job, "JobState") not in {"", "PENDING", "CONFIGURING"}, f"job {job} starts")
        return job

    def array(self, tasks: int) -> str:
        """Submit an array of so many jobs, each on a node of its own; returns its id when all of them run."""
        words = ("sbatch", "--parsable", "-o", "/dev/null", f"--array=0-{tasks - 1}", "--exclusive")
        array = self.run(*words, "--wrap", "sleep 300")
        running = ("squeue", "-h", "-t", "RUNNING", "-o", "%i", "-j", array)
        wait_until(lambda: len(self.run(*running).split()) == tasks, f"all of array {array} run")
        return array

    def jobs_on(self, node: str) -> list[str]:
        """The jobs that run on a node, as users name them."""
        return self.run("squeue", "-h", "-t", "RUNNING", "-o", "%i", "-w", node).split()

    def job(self, job: str, field: str) -> str:
        """One field of a job; empty: it has none, or Slurm has forgotten the job."""
        text = self.run("scontrol", "show", "job", job)
        found = re.search(rf"^ +{field}=(.*)$" if field == "AdminComment" else rf"\b{field}=(\S*)", text, re.MULTILINE)
        return found[1].strip() if found else ""

    def times_drained(self, node: str) -> int:
        """How often slurmctld was told to close the node for fleetd, by its own log."""
        log = (self.folder / "slurmctld.log").read_text()
        return len(re.findall(rf"update_node: node {node} reason set to: fleetd:", log))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _steps_of(folder: Path) -> list[int]:
    """Processes whose environment or command names the folder: job steps that outlived their daemon."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if entry.name.isdigit() and b"slurm" in words and str(folder).encode() in words:
            found.append(int(entry.name))
    return found


def now_s() -> float:
    """Wall time, seconds since the epoch."""
    return RealClock().wall_s()
