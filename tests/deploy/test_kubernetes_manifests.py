"""The manifests are what Kubernetes accepts, and their names, ports, labels and files fit each other and fleetd."""

import copy
import re
import shutil
import stat
import subprocess
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from burnin.cli import command as burnin
from fleetd.actuators.config import KubernetesConfig
from fleetd.cli import main
from fleetd.cli.failure import BAD, CANNOT_JUDGE, USAGE
from fleetd.config.files import AgentConfig, ControllerConfig, load_agent, load_controller
from fleetd.exporter.native import JobCollector
from fleetd.model.ids import GpuId
from fleetd.model.job import GpuJob
from tests.deploy.manifests import (
    FILES,
    FOLDER,
    containers,
    everything,
    named,
    of_kind,
    pod_of,
    read,
    selects,
    workloads,
)
from tests.deploy.promql import rules

ROOT = FOLDER.parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
BY_HAND = {"burnin-job.yaml", "servicemonitors.yaml"}
"""Not applied with the rest, for the reason in their first lines."""
VERSIONS = ("1.30", "1.34")
"""Of Kubernetes, the oldest and a young one that are tried; what is used is older than both."""


def name(one: dict[str, Any]) -> str:
    return f"{one['kind']}/{one['metadata']['name']}"


# ── Kubernetes ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    checked = 0
    for one in everything():
        if not one["apiVersion"].startswith("monitoring.coreos.com/"):  # the operator's own kind
            validator.validate(one, version, strict=True)
            checked += 1
    assert checked > 10


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kustomize_builds_it_with_other_images(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    (folder / "kustomization.yaml").write_text(
        "resources: [../kubernetes]\nimages: [{name: fleetd-controller, newName: site.example/f, newTag: '7'}]\n"
    )
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True)
    built = list(yaml.safe_load_all(done.stdout))
    applied = [one for path in FILES if path.name not in BY_HAND for one in read(path)]
    assert sorted(map(name, built)) == sorted(map(name, applied))
    images = {
        container["image"] for one in built if one["kind"] == "StatefulSet" for container in pod_of(one)["containers"]
    }
    assert images == {"site.example/f:7"}


def test_nothing_is_forgotten_in_the_kustomization() -> None:
    assert {*KUSTOMIZATION["resources"], *BY_HAND} == {path.name for path in FILES}
    for by_hand in BY_HAND:
        assert "not in kustomization.yaml" in (FOLDER / by_hand).read_text()
    images = {(image["name"], image["newTag"]) for image in KUSTOMIZATION["images"]}
    used = {tuple(container["image"].split(":")) for _, container in containers()}
    assert images == used
    assert {tag for _, tag in used} == {PROJECT["project"]["version"]}


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_namespace_account_and_file_that_is_named_is_there() -> None:
    namespaces = {one["metadata"]["name"] for one in of_kind("Namespace")}
    for one in everything():
        assert one["metadata"].get("namespace") in (namespaces if one["kind"] not in _WITHOUT else {None}), name(one)
    for workload in workloads():
        pod, namespace = pod_of(workload), workload["metadata"]["namespace"]
        if (account := pod.get("serviceAccountName")) is not None:
            named("ServiceAccount", account, namespace)
        for volume in pod["volumes"]:
            if "configMap" in volume:
                named("ConfigMap", volume["configMap"]["name"], namespace)
    (binding,) = of_kind("ClusterRoleBinding")
    (subject,) = binding["subjects"]
    assert pod_of(named("StatefulSet", "fleetd-controller", "fleetd"))["serviceAccountName"] == subject["name"]
    assert subject["namespace"] == "fleetd"


_WITHOUT = {"Namespace", "ClusterRole", "ClusterRoleBinding"}


def test_what_is_selected_is_there_and_its_ports_have_these_names() -> None:
    for workload in of_kind("StatefulSet", "DaemonSet"):
        assert selects(workload["spec"]["selector"]["matchLabels"], workload)
    for service in of_kind("Service"):
        chosen = [w for w in workloads() if selects(service["spec"]["selector"], w)]
        assert chosen
        assert {w["metadata"]["namespace"] for w in chosen} == {service["metadata"]["namespace"]}
        for port in service["spec"]["ports"]:
            for workload in chosen:
                (container,) = pod_of(workload)["containers"]
                numbers = {one["name"]: one["containerPort"] for one in container["ports"]}
                assert numbers[port["targetPort"]] == port["port"]
    for monitor in of_kind("ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        (service,) = [s for s in of_kind("Service") if wanted <= s["metadata"]["labels"].items()]
        assert service["metadata"]["namespace"] == monitor["metadata"]["namespace"]
        assert {e["port"] for e in monitor["spec"]["endpoints"]} <= {p["name"] for p in service["spec"]["ports"]}
    controller = named("StatefulSet", "fleetd-controller", "fleetd")
    (policy,) = of_kind("NetworkPolicy")
    (budget,) = of_kind("PodDisruptionBudget")
    for selector in (policy["spec"]["podSelector"], budget["spec"]["selector"]):
        assert selects(selector["matchLabels"], controller)
    ports = {one["name"] for one in pod_of(controller)["containers"][0]["ports"]}
    opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert opened == ports


def test_what_the_operator_scrapes_has_the_labels_that_the_rules_ask_for() -> None:
    """Else no alert fires, and nothing says so: the operator names a job after its Service."""
    asked = {job for rule in rules() for job in re.findall(r'job="([^"]+)"', rule["expr"])}
    given: dict[str, dict[str, Any]] = {}
    for monitor in of_kind("ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        made = {one["targetLabel"]: one for one in endpoint["relabelings"] if "targetLabel" in one}
        given[made["job"]["replacement"]] = {"labels": set(made), **monitor["spec"], **endpoint}
    assert given.keys() == asked
    agent = given["fleetd-agent"]
    assert {"host", "pool", "rack"} <= agent["labels"], "as prometheus.yml makes them"
    assert agent["attachMetadata"] == {"node": True}, "else there are no labels of nodes"
    (dropped,) = [one["regex"].split("|") for one in agent["relabelings"] if one.get("action") == "labeldrop"]
    job = GpuJob(gpu=GpuId("g"), scheduler="kubernetes", job_id="j", pod="p", namespace="n", container="c")
    (family,) = (f for f in JobCollector(lambda: (job,)).collect() if f.samples)
    of_the_target = {"pod", "container", "namespace", "endpoint", "service"}
    assert family.samples[0].labels.keys() & of_the_target <= set(dropped), "else they become exported_…"


def test_probes_of_an_agent_cost_less_than_the_agent_may() -> None:
    """Each starts a program: 0.3 s of a core, as long as `fleetd --version` may take; the agent has 1 % of a core."""
    for vendor in ("nvidia", "amd"):
        (container,) = pod_of(named("DaemonSet", f"fleetd-agent-{vendor}", "fleetd-agents"))["containers"]
        each = [container[kind]["periodSeconds"] for kind in ("livenessProbe", "readinessProbe")]
        assert sum(0.3 / period for period in each) < 0.01


def test_each_mount_is_a_volume_and_each_probe_a_port() -> None:
    for workload, container in containers():
        claims = [one["metadata"] for one in workload["spec"].get("volumeClaimTemplates", ())]
        volumes = {one["name"] for one in (*pod_of(workload)["volumes"], *claims)}
        assert volumes == {mount["name"] for mount in container["volumeMounts"]}, name(workload)
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            for asks in ("tcpSocket", "httpGet"):
                if asks in container.get(kind, {}):
                    assert container[kind][asks]["port"] in {port["name"] for port in container["ports"]}


# ── fleetd ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def commands() -> list[list[str]]:
    """The words after `fleetd` of all that is started."""
    found = [container["args"] for _, container in containers()]
    for _, container in containers():
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            command = container.get(kind, {}).get("exec", {}).get("command")
            if command is not None:
                assert command[0] == "fleetd"
                found.append(command[1:])
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_what_is_started_is_a_command_with_these_options(words: list[str]) -> None:
    # `fleetd burnin` hands its words to the package of its own.
    command, rest = (burnin, words[1:]) if words[0] == "burnin" else (main, list(words))
    context = click.Context(command, info_name="fleetd")
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        inner = command.get_command(context, rest.pop(0))
        assert inner is not None, words
        command, context = inner, click.Context(inner, parent=context, info_name=inner.name)
    _, arguments, _ = command.make_parser(context).parse_args(rest)  # raises on an option that there is not
    assert not arguments


@pytest.fixture(name="config")
def _config(tmp_path: Path) -> Any:
    def of(map_name: str, namespace: str) -> AgentConfig | ControllerConfig:
        ((file, text),) = named("ConfigMap", map_name, namespace)["data"].items()
        (tmp_path / file).write_text(text)
        return load_agent(tmp_path / file) if file == "agent.yaml" else load_controller(tmp_path / file)

    return of


def inside(path: Path | str, container: dict[str, Any]) -> dict[str, Any]:
    """The mount that a path lies in."""
    mounts = [m for m in container["volumeMounts"] if Path(path).is_relative_to(m["mountPath"])]
    assert mounts, f"{path} is in no volume"
    return max(mounts, key=lambda mount: len(mount["mountPath"]))  # type: ignore[no-any-return]


def test_the_controllers_file_fits_its_pod(config: Any) -> None:
    read_config = config("fleetd-controller", "fleetd")
    workload = named("StatefulSet", "fleetd-controller", "fleetd")
    (container,) = pod_of(workload)["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert read_config.actuator == KubernetesConfig(kind="kubernetes")
    assert int(read_config.server.listen.rpartition(":")[2]) == ports["grpc"]
    assert int(read_config.exporter.listen.rpartition(":")[2]) == ports["metrics"]
    assert inside(read_config.state_dir, container)["name"] == "ledger"
    assert inside(container["args"][-1], container)["name"] == "config"
    tls = read_config.server.tls
    for path in (tls.ca, tls.cert, tls.key):
        assert inside(path, container)["name"] == "tls"
        assert f"--from-file={Path(path).name}" in (FOLDER / "controller.yaml").read_text()


def test_its_key_has_a_mode_that_fleetd_takes() -> None:
    """Secrets are root's: their group may read them, which is the pod's `fsGroup`; nobody else may."""
    pod = pod_of(named("StatefulSet", "fleetd-controller", "fleetd"))
    (mode,) = [volume["secret"]["defaultMode"] for volume in pod["volumes"] if "secret" in volume]
    assert mode & 0o027 == 0
    assert mode & stat.S_IRGRP
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_an_agents_file_fits_its_pod(vendor: str, config: Any) -> None:
    read_config = config(f"fleetd-agent-{vendor}", "fleetd-agents")
    (container,) = pod_of(named("DaemonSet", f"fleetd-agent-{vendor}", "fleetd-agents"))["containers"]
    assert read_config.devices.backend == vendor
    service = named("Service", "fleetd-controller", "fleetd")
    (port,) = [one["port"] for one in service["spec"]["ports"] if one["name"] == "grpc"]
    assert read_config.uplink.address == f"{service['metadata']['name']}.fleetd.svc:{port}"
    assert int(read_config.exporter.listen.rpartition(":")[2]) == container["ports"][0]["containerPort"]
    assert inside(read_config.state_dir, container)["name"] == "state"
    assert inside(read_config.status.socket, container)["name"] == "run"
    for probe in (container["livenessProbe"], container["readinessProbe"]):
        assert probe["exec"]["command"][-1] == str(read_config.status.socket)
    for path in (read_config.uplink.ca, read_config.uplink.cert, read_config.uplink.key):
        assert inside(path, container)["name"] == "identity"


def test_the_agents_of_both_vendors_differ_in_their_vendor_only() -> None:
    nvidia, amd = (copy.deepcopy(named("DaemonSet", f"fleetd-agent-{v}", "fleetd-agents")) for v in ("nvidia", "amd"))
    assert pod_of(nvidia).pop("runtimeClassName") == "nvidia"
    for one in (nvidia, amd):
        pod = pod_of(one)
        del pod["nodeSelector"]
        pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "rocm"]
        (container,) = pod["containers"]
        container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != "rocm"]
        container["env"] = [variable for variable in container["env"] if not variable["name"].startswith("NVIDIA_")]
    assert yaml.safe_dump(nvidia).replace("nvidia", "amd") == yaml.safe_dump(amd)


# ── rights ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workload", workloads(), ids=name)
def test_who_needs_no_rights_has_none(workload: dict[str, Any]) -> None:
    """The agent alone is privileged, which its manifest explains; it has no account at the API server."""
    pod = pod_of(workload)
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    if workload["kind"] == "DaemonSet":
        assert workload["metadata"]["namespace"] == "fleetd-agents"
        assert pod["automountServiceAccountToken"] is False
        return
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    assert ("serviceAccountName" in pod) is (workload["kind"] == "StatefulSet")


@pytest.mark.parametrize("file", [FOLDER / "agent-nvidia.yaml", FOLDER / "agent-amd.yaml"], ids=lambda f: f.stem)
def test_what_the_agent_is_allowed_has_its_reason(file: Path) -> None:
    lines = file.read_text().splitlines()
    for number, line in enumerate(lines):
        if re.search(r"hostNetwork|hostPID|privileged: true|operator: Exists|automount", line):
            assert "#" in line or lines[number - 1].lstrip().startswith("#"), line


def test_two_controllers_never_run_on_one_ledger() -> None:
    workload = named("StatefulSet", "fleetd-controller", "fleetd")
    assert workload["spec"]["replicas"] == 1
    (claim,) = workload["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_a_burnin_that_judged_is_not_repeated() -> None:
    (job,) = of_kind("Job")
    rules = {rule["action"]: rule["onExitCodes"]["values"] for rule in job["spec"]["podFailurePolicy"]["rules"]}
    assert rules == {"FailJob": [BAD, USAGE], "Count": [CANNOT_JUDGE]}
    assert pod_of(job)["restartPolicy"] == "Never"


# ── images ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_images_are_made_of_what_there_is() -> None:
    text = (FOLDER / "Containerfile").read_text()
    builds = dict(re.findall(r"EXTRAS=(\S+) -t (\S+)", text))
    assert set(builds.values()) == {container["image"] for _, container in containers()}
    extras = set(chain.from_iterable(one.split(",") for one in builds))
    assert extras <= PROJECT["project"]["optional-dependencies"].keys()
    assert 'ENTRYPOINT ["fleetd"]' in text
    assert "fleetd" in PROJECT["project"]["scripts"]
    copied = set(re.findall(r"^COPY (.+) /src/", text, re.MULTILINE))
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["packages"], *wheel["force-include"]} <= copied, "what a wheel is made of"
    user = re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
    pod = pod_of(named("StatefulSet", "fleetd-controller", "fleetd"))["securityContext"]
    assert user == [(str(pod["runAsUser"]), str(pod["runAsGroup"]))]
