"""What `test_ipv6_only.py` runs in a network namespace without IPv4: a controller, an agent, and everybody who asks.

Prints one JSON object: what was found. Run as `python -m tests.e2e.ipv6_host FOLDER`.
"""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import yaml

from fleetd.system import RealClock
from fleetd.uplink.pki import DevPki, make_dev_pki

WAIT_S = 90.0


def free_port() -> int:
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return int(probe.getsockname()[1])


def has_ipv4() -> bool:
    with socket.socket(socket.AF_INET) as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError:
            return False
        return True


def write(path: Path, kind: str, **keys: object) -> Path:
    path.write_text(yaml.safe_dump({"apiVersion": "fleetd/v1", "kind": kind, **keys}))
    return path


def tls(folder: Path, stem: str) -> dict[str, str]:
    return {"ca": f"{folder}/pki/ca.crt", "cert": f"{folder}/pki/{stem}.crt", "key": f"{folder}/pki/{stem}.key"}


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "fleetd", *words], capture_output=True, text=True, check=False, timeout=60
    )


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://[::1]:{port}/metrics", timeout=10) as page:
        text: str = page.read().decode()
        return text


def main(folder: Path) -> dict[str, object]:
    """Run it all and say what came of it."""
    make_dev_pki(folder / "pki", DevPki(hosts=("h6",), operators=("ann",)), now_s=RealClock().wall_s())
    port, agent_metrics, controller_metrics = free_port(), free_port(), free_port()
    for name in ("a", "c"):
        (folder / name).mkdir()
    configs = {
        "controller": write(
            folder / "controller.yaml",
            "Controller",
            state_dir=str(folder / "c"),
            server={"listen": f"[::1]:{port}", **tls(folder, "controller")},
            exporter={"listen": f"[::1]:{controller_metrics}"},
        ),
        "agent": write(
            folder / "agent.yaml",
            "Agent",
            host="h6",
            state_dir=str(folder / "a"),
            devices={"backend": "sim", "gpus": 2},
            status={"socket": str(folder / "s")},
            uplink={"address": f"[::1]:{port}", **tls(folder, "agents/h6")},
            exporter={"listen": f"[::1]:{agent_metrics}"},
        ),
    }
    desk = ["--controller", f"[::1]:{port}"]
    for option, path in tls(folder, "operators/ann").items():
        desk += [f"--{option}", path]
    found: dict[str, object] = {"ipv4": has_ipv4()}
    with ExitStack() as running:
        for noun, config in configs.items():
            log = running.enter_context((folder / f"{noun}.log").open("w"))
            command = [sys.executable, "-P", "-m", "fleetd", noun, "--config", str(config)]
            process = running.enter_context(subprocess.Popen(command, stdout=log, stderr=log))
            running.callback(process.terminate)
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            listed = cli("host", "list", *desk, "--json", "-")
            if listed.returncode == 0 and '"healthy"' in listed.stdout:
                break
        found["list"] = listed.stdout or listed.stderr
        found["check"] = cli("check", "--socket", str(folder / "s")).returncode
        found["held"] = cli("host", "quarantine", "h6", "--reason", "a look", *desk).returncode
        found["agent"] = "fleetd_gpu_power_watts{" in metrics(agent_metrics)
        found["controller"] = "fleetd_hosts{" in metrics(controller_metrics)
    found["logs"] = "".join(path.read_text() for path in sorted(folder.glob("*.log")))
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
