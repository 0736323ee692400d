"""`actuator:` and `pages:` of the controller's file: what is understood, and what is refused with its line."""

from pathlib import Path

import pytest

from fleetd.actuators.config import KubernetesConfig, NodeNames, SlurmConfig, WebhookConfig
from fleetd.actuators.dryrun import DryRun
from fleetd.compose.actuators import build_actuator, slurm_environment
from fleetd.config import ConfigError
from fleetd.config.files import ControllerConfig, load_controller
from fleetd.system import RealClock

FILE = """\
apiVersion: fleetd/v1
kind: Controller
state_dir: /tmp
server: {listen: "127.0.0.1:0", insecure: true}
"""


def read(folder: Path, more: str) -> ControllerConfig:
    path = folder / "controller.yaml"
    path.write_text(FILE + more)
    return load_controller(path)


def test_nothing_is_touched_unless_it_is_said(tmp_path: Path) -> None:
    config = read(tmp_path, "")
    actuator, job_ends = build_actuator(config, tmp_path, RealClock())
    assert isinstance(actuator, DryRun)
    assert job_ends is None


def test_each_scheduler_is_understood(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sixteen bytes at least")
    slurm = read(tmp_path, "actuator: {kind: slurm, conf: /x/slurm.conf, hosts: {names: short, nodes: {a.b: n1}}}\n")
    assert slurm.actuator == SlurmConfig(
        kind="slurm", conf=Path("/x/slurm.conf"), hosts=NodeNames(names="short", nodes={"a.b": "n1"})
    )
    kubernetes = read(tmp_path, "actuator: {kind: kubernetes, gpu_resources: [amd.com/gpu], ca: null}\n")
    assert kubernetes.actuator == KubernetesConfig(kind="kubernetes", gpu_resources=("amd.com/gpu",), ca=None)
    hook = f'{{url: "https://site:8443/hook", secret: {key}}}'
    webhook = read(tmp_path, f"actuator: {hook[:1]}kind: webhook, {hook[1:]}\npages: {hook}\n")
    assert webhook.actuator == webhook.pages == WebhookConfig(url="https://site:8443/hook", secret=key)
    names = [build_actuator(config, tmp_path, RealClock())[0].name for config in (slurm, kubernetes, webhook)]
    assert names == ["slurm", "kubernetes", "webhook, pages by webhook"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("actuator: slurm\n", "5: `actuator`"),
        ("actuator: {kind: sge}\n", "5: "),
        ("actuator: {conf: /x}\n", "5: "),
        ("actuator: {kind: slurm, scontrl: x}\n", "did you mean `scontrol`"),
        ("actuator: {kind: slurm, hosts: {nodes: {a: n1, b: n1}}}\n", "a and b both claim the node n1"),
        ('actuator: {kind: slurm, hosts: {nodes: {a: "n1;reboot"}}}\n', "no name of a node"),
        ("actuator: {kind: slurm, timeout_seconds: 0}\n", "timeout_seconds must be at least 1"),
        ('actuator: {kind: kubernetes, server: "http://k8s"}\n', "not encrypted"),
        ('actuator: {kind: webhook, url: "https://me:pw@site/", secret: /x}\n', "names no user"),
        ('pages: {url: "ftp://site/", secret: /x}\n', "no address such as https"),
        ('pages: {url: "https://[", secret: /x}\n', "no address"),
        ('pages: {url: "https://a..b/", secret: /x}\n', "no address"),
        ('pages: {url: "https://site/é", secret: /x}\n', "write them as %XX"),
        ('pages: {url: "https://site/a b", secret: /x}\n', "write them as %XX"),
        ("scheduler: {jobs_seconds: 0}\n", "jobs_seconds: must be at least 1"),
    ],
)
def test_what_cannot_work_is_one_line(more: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, more)
    assert words in str(caught.value)
    assert "controller.yaml:5: " in str(caught.value)


def test_slurms_commands_see_nothing_that_changes_what_they_print() -> None:
    config = SlurmConfig(kind="slurm")
    environ = {"PATH": "/bin", "SLURM_TIME_FORMAT": "%s", "SQUEUE_FORMAT": "%i", "SLURM_CONF": "/x", "SECRET": "s"}
    assert slurm_environment(config, environ) == {"PATH": "/bin", "LC_ALL": "C.UTF-8", "SLURM_CONF": "/x"}
