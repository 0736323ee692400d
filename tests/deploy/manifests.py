"""The Kubernetes manifests, read strictly: a key that stands twice, an anchor or an empty document is a mistake."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")


class _Strict(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key stands twice among {keys}"
        return super().construct_mapping(node, deep=deep)


def read(path: Path) -> list[dict[str, Any]]:
    """The objects of a file."""
    objects = list(yaml.load_all(path.read_text(), Loader=_Strict))
    assert objects
    assert all(isinstance(one, dict) for one in objects), f"{path.name}: an empty document"
    assert not [event for event in yaml.parse(path.read_text()) if getattr(event, "anchor", None)], "no anchors"
    return objects


def everything() -> list[dict[str, Any]]:
    """All objects."""
    return [one for path in FILES for one in read(path)]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    """All objects of some kinds."""
    return [one for one in everything() if one["kind"] in kinds]


def named(kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
    """The one object of a kind with this name."""
    (found,) = [
        one
        for one in of_kind(kind)
        if one["metadata"]["name"] == name and one["metadata"].get("namespace") == namespace
    ]
    return found


def workloads() -> list[dict[str, Any]]:
    """What starts pods."""
    return of_kind("StatefulSet", "DaemonSet", "Job", "Deployment")


def pod_of(workload: Mapping[str, Any]) -> dict[str, Any]:
    """The pod's specification."""
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(workload, container) of each."""
    for workload in workloads():
        for container in pod_of(workload)["containers"]:
            yield workload, container


def selects(selector: Mapping[str, str], workload: Mapping[str, Any]) -> bool:
    """Whether labels of a selector are among those of a workload's pods."""
    labels = workload["spec"]["template"]["metadata"]["labels"]
    return selector.items() <= labels.items()
