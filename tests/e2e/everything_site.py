"""A small site with nothing left out: what runs on it, how it is written down, and what can befall its hosts.

Ten hosts in three racks, each with an agent that reads a vendor's fake library; two controllers on one PostgreSQL, with
the page; a real Slurm of ten nodes. Not real are the GPUs: their libraries, their kernel log, their device files, and
what their burn-ins compute on.
"""

import ssl
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import yaml

from fleetd.config.shipped import policy_path
from fleetd.loopback import HostPlan, Loopback, free_ports
from fleetd.system import RealClock
from fleetd.uplink.desk import DeskConfig
from fleetd.web.tokens import new_token
from tests.actuators.slurm_cluster import SlurmCluster
from tests.actuators.waiting import wait_until
from tests.postgres import Cluster

CONTROLLERS = ("controller", "controller-2")
RACKS = {"r1": ("h01", "h02", "h03"), "r2": ("h04", "h05", "h06"), "r3": ("h07", "h08", "h09", "h10")}
AMD = ("h06", "h09", "h10")
HOSTS = tuple(host for rack in RACKS.values() for host in rack)
GPUS = 2
GPU = 1
"""The GPU of a host that something befalls, and that jobs hold."""
PCI = f"00fa:{16 * GPU + 11:02x}:00"
"""Its address, as the kernel writes that of a fake NVIDIA GPU."""
AWAY_SECONDS = 20.0
ROLES = {"olga": "operator", "prometheus": "viewer", "alertmanager": "hook"}


def site_policy() -> dict[str, Any]:
    """The shipped policy, as a site of ten hosts would change it."""
    policy: dict[str, Any] = yaml.safe_load(policy_path("default").read_text())
    policy["drains"] = dict.fromkeys(("chip-persistent", "chip-transient", "link", "unresponsive"), "now")
    policy["budgets"]["quarantines"]["at_least"] = 2  # a twentieth of ten hosts would be one
    policy["silence"]["after_seconds"] = AWAY_SECONDS  # no test waits for five minutes
    return policy


def power_tree() -> dict[str, Any]:
    """A hall with three racks."""
    hall = {"name": "hall", "budget_watts": 40_000}
    racks = [{"name": rack, "parent": "hall", "budget_watts": 4_000 * len(hosts)} for rack, hosts in RACKS.items()]
    hosts = [
        {"hosts": host, "area": rack, "safe_watts": 3800, "max_watts": 4000}
        for rack, names in RACKS.items()
        for host in names
    ]
    return {"apiVersion": "fleetd/v1", "kind": "PowerTree", "areas": [hall, *racks], "hosts": hosts}


class Site(Loopback):
    """Its processes by name: the hosts and `CONTROLLERS`."""

    def __init__(self, folder: Path, *, postgres: Cluster, slurm: SlurmCluster) -> None:
        """Write everything down; nothing of fleetd runs yet."""
        self.slurm = slurm
        self.jobs = folder / "jobs"
        self.jobs.mkdir()
        (folder / "policy.yaml").write_text(yaml.safe_dump(site_policy(), sort_keys=False))
        (folder / "tree.yaml").write_text(yaml.safe_dump(power_tree(), sort_keys=False))
        plans = tuple(HostPlan(name=h, gpus=GPUS, vendor="amd" if h in AMD else "nvidia") for h in HOSTS)
        self.tokens = {name: new_token(name, role, entropy=f"{name:x<43}") for name, role in ROLES.items()}
        self.ledger = postgres.place(port=postgres.port)
        self.second_port = 0
        super().__init__(
            folder,
            plans,
            now_s=RealClock().wall_s(),
            policy=str(folder / "policy.yaml"),
            controller={
                "store": self.ledger.url,
                "actuator": {"kind": "slurm", "conf": str(slurm.conf), "timeout_seconds": 60},
                "scheduler": {"compare_seconds": 5, "jobs_seconds": 1},
                "power": {"tree": str(folder / "tree.yaml")},
            },
        )
        self.second_port, self.metrics_ports[CONTROLLERS[1]], *web = self._further_ports(4)
        self.web_ports = dict(zip(CONTROLLERS, web, strict=True))
        self._write_web()
        self.kernel_logs = {host: folder / f"{host}-kernel.log" for host in HOSTS if host not in AMD}
        for log in self.kernel_logs.values():
            log.touch()
        for host in HOSTS:
            self.write_agent(host, port=self.port)

    def _further_ports(self, count: int) -> list[int]:
        taken = {self.port, *self.metrics_ports.values()}
        while taken & set(found := free_ports(count)):
            pass
        return list(found)

    # ── configuration ───────────────────────────────────────────────────────────────────────────────────────────────

    def _write_web(self) -> None:
        tokens = self.folder / "tokens"
        tokens.touch(mode=0o600)
        tokens.write_text("".join(f"{line}\n" for _, line in self.tokens.values()))
        first = yaml.safe_load((self.folder / f"{CONTROLLERS[0]}.yaml").read_text())
        files = {name: first["server"][name] for name in ("cert", "key")}
        for name in CONTROLLERS:
            state = self.folder / name
            state.mkdir(exist_ok=True)
            body = {
                **first,
                "state_dir": str(state),
                "exporter": {"listen": f"127.0.0.1:{self.metrics_ports[name]}"},
                "web": {"listen": f"127.0.0.1:{self.web_ports[name]}", "tokens": str(tokens), **files},
            }
            if name != CONTROLLERS[0]:
                body["server"] = {**first["server"], "listen": f"127.0.0.1:{self.second_port}"}
            self._write(name, body)

    def write_agent(self, name: str, *, port: int) -> None:
        """The same, with everything that a site has written down, too."""
        super().write_agent(name, port=port)
        if not self.second_port:
            return
        file = self.folder / f"{name}.yaml"
        body = yaml.safe_load(file.read_text())
        rack = next(rack for rack, hosts in RACKS.items() if name in hosts)
        body["place"] = {"pool": "train", "rack": rack}
        body["uplink"] |= {
            "address": [f"127.0.0.1:{port}", f"127.0.0.1:{self.second_port}"],
            "retry_max_seconds": 5.0,
            "telemetry_interval_seconds": 2.0,
        }
        # What takes a minute by itself, so that a test need not.
        body["devices"] |= {"slow_reading_interval_seconds": 2.0, "discovery_interval_seconds": 3.0}
        body["jobs"] = {"slurm": "auto", "kubelet": "off", "interval_seconds": 1.0}
        if name in self.kernel_logs:
            body["kernel_log"] = {"source": str(self.kernel_logs[name])}
            body["power"] = {"envelope": "h200", "host_base_watts": 2500.0}
        self._write(name, body)

    def program(self, name: str) -> list[str]:
        """A host on which jobs may hold a GPU sees that they do."""
        words = super().program(name)
        if name not in self.plans:
            return words
        return [sys.executable, "-m", "tests.e2e.agent_of_jobs", *words[words.index("fleetd") + 1 :]]

    def environ(self, name: str) -> dict[str, str]:
        """The same, and where the launcher is found."""
        root = str(Path(__file__).parents[2])
        return {**super().environ(name), "JOBS_GPU": f"{PCI}.0", "PYTHONPATH": root}

    @property
    def desk_config(self) -> DeskConfig:
        """Of both controllers the judge is asked."""
        return replace(super().desk_config, address=f"127.0.0.1:{self.port},127.0.0.1:{self.second_port}")

    # ── what can be asked ───────────────────────────────────────────────────────────────────────────────────────────

    def start_all(self) -> None:
        """Start both controllers and every agent."""
        for name in (*CONTROLLERS, *HOSTS):
            self.start(name)

    def judge(self) -> str | None:
        """The controller that judges, by its own word; None: none says so."""
        return next((name for name in CONTROLLERS if "\nfleetd_controller_leader 1.0" in self.metrics(name)), None)

    def fleet(self) -> Any:
        """The fleet as one thing, by the judge's HTTP API."""
        return self.get("/fleet")

    def get(self, path: str) -> Any:
        """What the judge's HTTP API answers, as soon as there is a judge."""
        found: list[Any] = []
        wait_until(lambda: found.append(self._get(path)) or found[-1] is not None, f"a judge answers {path}")
        return found[-1]

    def _get(self, path: str) -> Any:
        token, _ = self.tokens["prometheus"]
        headers = {"Authorization": f"Bearer {token}"}
        authority = ssl.create_default_context(cafile=self.folder / "pki" / "ca.crt")
        for port in self.web_ports.values():
            try:
                url = f"https://127.0.0.1:{port}/api/v1{path}"
                said = httpx.get(url, headers=headers, timeout=60, verify=authority)
            except httpx.TransportError:
                continue
            if said.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                return said.raise_for_status().json()
        return None

    def findings(self, host: str, code: str) -> list[dict[str, Any]]:
        """What was found on a host, by code."""
        return [finding for finding in self.get(f"/hosts/{host}")["findings"] if finding.get("code") == code]

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, *options: str) -> str:
        """A job that holds a GPU until somebody stops it. On a host that `corrupts`, it trains, under the guard.

        Its ranks compute wrong, as on a chip that does so again and again; the guard in them finds it and tells the
        agent of their host, each time anew.
        """
        train = f"{sys.executable} -m burnin.examples.gpt --inject chip --steps 60 --deadline 600"
        script = f"""
            export PYTHONPATH={Path(__file__).parents[2]} FLEETD_GUARD_SOCKET={self.folder}/$SLURMD_NODENAME-guard.sock
            cd {self.jobs}
            exec 9</dev/full
            echo $$ > pid-$SLURM_JOB_ID.part && mv pid-$SLURM_JOB_ID.part pid-$SLURM_JOB_ID
            while :; do
                if [ -e corrupt-$SLURMD_NODENAME ]; then {train} >> training-$SLURM_JOB_ID.log 2>&1; else sleep 0.5; fi
            done
        """
        return self.slurm.submit(script, *options)

    def holds_a_gpu(self, job: str, host: str) -> None:
        """Let the driver of a host tell the process of a job, as it does of one that computes."""
        pid = (self.jobs / f"pid-{job}").read_text().strip()
        self.fakes[host].scenario.put(GPU, {"Processes": 1, "ProcessId": pid})

    # ── what can befall hosts ───────────────────────────────────────────────────────────────────────────────────────

    def corrupts(self, host: str) -> None:
        """From now on a GPU computes wrong, in training and in burn-ins."""
        self.fakes[host].burn_in(seed=1, inject=f"gpu={GPU},fault=F03,rate=0.3")
        (self.jobs / f"corrupt-{host}").touch()

    def is_exchanged(self, host: str) -> None:
        """Somebody puts in another part, which computes right."""
        self.fakes[host].burn_in(seed=1)
        (self.jobs / f"corrupt-{host}").unlink()

    def falls_off_the_bus(self, host: str) -> None:
        """A GPU is gone: the kernel says so, and the driver does not find it any more."""
        with self.kernel_logs[host].open("a") as log:
            log.write(f"[12.0] NVRM: Xid (PCI:{PCI}): 79, pid=1, GPU has fallen off the bus.\n")
        self.fakes[host].scenario.put(GPU, {"gone": 1})
        self.fakes[host].burn_in(seed=1, gpus=GPUS - 1)

    def sags(self, rack: str) -> None:
        """The supply of a rack sags: each chassis brakes its GPUs."""
        now_s = time.monotonic()
        for host in RACKS[rack]:
            if host in AMD:  # the firmware counts the milliseconds in which the pin was held down
                braked: Mapping[str, object] = {
                    "metrics_info.prochot_residency_acc": f"{-900 * now_s:.0f} + 900",
                }
            else:
                braked = {"CurrentClocksEventReasons": 0x84, "field.271": f"{-1e9 * now_s:.0f} + 1000000000"}
            self.fakes[host].scenario.put("*", braked)

    def recovers(self, rack: str) -> None:
        """The supply of a rack is back."""
        for host in RACKS[rack]:
            still = {"metrics_info.prochot_residency_acc": 0}
            self.fakes[host].scenario.put(
                "*", still if host in AMD else {"CurrentClocksEventReasons": 0x04, "field.271": 0}
            )
