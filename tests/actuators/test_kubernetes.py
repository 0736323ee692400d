"""The Kubernetes actuator against a strict API server: conflicts, refusals, expiry, and others' cordons."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fleetd.actuators import kubernetes_api
from fleetd.actuators.config import KubernetesConfig, NodeNames
from fleetd.actuators.kubernetes import CONDITION, CORDONED, ORDER, TAINT, Kubernetes
from fleetd.actuators.kubernetes_api import Api
from fleetd.actuators.kubernetes_jobs import KubernetesJobs
from fleetd.actuators.kubernetes_leave import LEAVE_BY
from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import Drain, Quarantine, Release
from fleetd.ports import ActuatorError, ActuatorObjection, Receipt
from fleetd.system import run_blocking
from tests.actuators.fake_kubernetes import TOKEN, Cluster, granted, serving

NOW_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
OURS = {"key": TAINT, "value": "true", "effect": "NoSchedule"}
OTHER = {"key": "other", "effect": "NoExecute"}


@dataclass
class StillClock:
    wall: float = NOW_S
    elapsed: float = 0.0

    def wall_s(self) -> float:
        return self.wall

    def elapsed_s(self) -> float:
        return self.elapsed

    async def sleep_s(self, seconds: float) -> None:
        raise AssertionError(f"nobody waits {seconds} s in an adapter")


@pytest.fixture(name="cluster")
def _cluster() -> Cluster:
    cluster = Cluster()
    for name in ("n1", "n2", "n3"):
        cluster.add_node(name, taints=[OTHER])
    return cluster


@pytest.fixture(name="config")
def _config(cluster: Cluster, tmp_path: Path) -> Iterator[KubernetesConfig]:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with serving(cluster) as server:
        yield KubernetesConfig(kind="kubernetes", server=server, token=tmp_path / "token", timeout_seconds=30)


def api(config: KubernetesConfig) -> Api:
    return Api(config, run_blocking=run_blocking)


def kubernetes(config: KubernetesConfig, clock: StillClock | None = None) -> Kubernetes:
    return Kubernetes(config, api=api(config), clock=clock or StillClock())


def quarantine(host: str = "n1", number: int = 1, drain: Drain = Drain.JOB_END) -> Quarantine:
    order_id = OrderId(f"{host}/{number}/quarantine")
    return Quarantine(id=order_id, host=HostName(host), issued_at_s=NOW_S, why="gpu 2 is wrong", drain=drain)


def release(host: str = "n1", number: int = 2) -> Release:
    return Release(id=OrderId(f"{host}/{number}/release"), host=HostName(host), issued_at_s=NOW_S, why="proven")


def do(actuator: Kubernetes, order: Quarantine | Release) -> Receipt:
    return asyncio.run(actuator.carry_out(order))


def condition(node: dict[str, Any]) -> str | None:
    return next((c["status"] for c in node["status"]["conditions"] if c["type"] == CONDITION), None)


# ── close and open ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_is_closed_in_one_change_and_given_back_as_it_was(cluster: Cluster, config: KubernetesConfig) -> None:
    before = cluster.nodes["n1"]["spec"].copy()
    assert do(kubernetes(config), quarantine()).done
    node = cluster.nodes["n1"]
    assert node["spec"] == {"unschedulable": True, "taints": [OTHER, OURS]}
    assert node["metadata"]["annotations"] == {"a": "b", ORDER: "n1/1/quarantine", CORDONED: "true"}
    assert condition(node) == "True"
    version = node["metadata"]["resourceVersion"]
    assert do(kubernetes(config), quarantine()).done  # another process
    assert node["metadata"]["resourceVersion"] == version, "nothing is written again"
    assert do(kubernetes(config), release()).done
    assert node["spec"] == before
    assert node["metadata"]["annotations"] == {"a": "b"}
    assert condition(node) == "False"
    assert "no cordon of fleetd" in do(kubernetes(config), release()).why


def test_a_condition_tells_since_when_it_is_so(cluster: Cluster, config: KubernetesConfig) -> None:
    def since() -> list[str]:
        found = cluster.nodes["n1"]["status"]["conditions"]
        return [one["lastTransitionTime"] for one in found if one["type"] == CONDITION]

    do(kubernetes(config), quarantine())
    do(kubernetes(config, StillClock(wall=NOW_S + 60)), quarantine(number=3))  # for another reason
    assert since() == ["2026-01-01T00:00:00Z"]
    do(kubernetes(config, StillClock(wall=NOW_S + 120)), release(number=4))
    assert since() == ["2026-01-01T00:02:00Z"]


def test_a_cordon_of_somebody_else_stays(cluster: Cluster, config: KubernetesConfig) -> None:
    cluster.nodes["n1"]["spec"]["unschedulable"] = True
    assert "left as it is" in do(kubernetes(config), release()).why
    assert "somebody else has cordoned it too" in do(kubernetes(config), quarantine()).why
    assert cluster.nodes["n1"]["metadata"]["annotations"][CORDONED] == "false"
    do(kubernetes(config), quarantine())  # again: it is still theirs
    assert "cordon stays" in do(kubernetes(config), release()).why
    assert cluster.nodes["n1"]["spec"] == {"unschedulable": True, "taints": [OTHER]}


def test_an_uncordon_by_hand_is_undone_while_the_order_is_meant(cluster: Cluster, config: KubernetesConfig) -> None:
    do(kubernetes(config), quarantine())
    cluster.nodes["n1"]["spec"].pop("unschedulable")
    do(kubernetes(config), quarantine())
    assert cluster.nodes["n1"]["spec"]["unschedulable"]


def test_a_change_of_somebody_else_in_between_is_not_lost(cluster: Cluster, config: KubernetesConfig) -> None:
    late = {"key": "late", "effect": "NoSchedule"}

    def taints(cluster: Cluster) -> None:
        node = cluster.nodes["n1"]
        node["spec"]["taints"].append(late)
        node["metadata"]["resourceVersion"] = cluster.version()

    cluster.before_patch.append(taints)
    assert do(kubernetes(config), quarantine()).done
    assert cluster.nodes["n1"]["spec"]["taints"] == [OTHER, late, OURS]


def test_a_node_that_changes_all_the_time_is_left_for_the_next_attempt(
    cluster: Cluster, config: KubernetesConfig
) -> None:
    def again(cluster: Cluster) -> None:
        cluster.nodes["n1"]["metadata"]["resourceVersion"] = cluster.version()

    class Always(list[Any]):
        def __bool__(self) -> bool:
            again(cluster)
            return False

    cluster.before_patch = Always()
    with pytest.raises(ActuatorError, match="n1 changed 5 times"):
        do(kubernetes(config), quarantine())
    assert "unschedulable" not in cluster.nodes["n1"]["spec"]


def test_a_stale_order_changes_nothing(cluster: Cluster, config: KubernetesConfig) -> None:
    do(kubernetes(config), quarantine(number=5))
    assert "stale" in do(kubernetes(config), quarantine(number=3)).why
    assert "stale" in do(kubernetes(config), release(number=4)).why
    assert cluster.nodes["n1"]["metadata"]["annotations"][ORDER] == "n1/5/quarantine"


def test_an_unknown_node_is_told_and_a_renamed_one_is_named(cluster: Cluster, config: KubernetesConfig) -> None:
    with pytest.raises(ActuatorObjection, match="knows no node gpu-001"):
        do(kubernetes(config), quarantine("gpu-001"))
    assert "nothing to give back" in do(kubernetes(config), release("gpu-001")).why
    named = replace(config, hosts=NodeNames(nodes={"gpu-001": "n2"}))
    assert do(kubernetes(named), quarantine("gpu-001")).done
    assert cluster.nodes["n2"]["spec"]["unschedulable"]


def test_two_hosts_that_claim_one_node(config: KubernetesConfig) -> None:
    actuator = kubernetes(replace(config, hosts=NodeNames(names="short")))
    assert do(actuator, quarantine("n1.a")).done
    with pytest.raises(ActuatorObjection, match=r"cordoned for n1\.a: two hosts of the fleet claim it"):
        do(actuator, quarantine("n1.b"))
    asyncio.run(actuator.standing([HostName("n1.a"), HostName("n1.b")]))
    with pytest.raises(ActuatorObjection, match="both claim the node n1"):
        do(actuator, release("n1.a"))


def test_what_stands_is_read_page_by_page(cluster: Cluster, config: KubernetesConfig) -> None:
    do(kubernetes(config), quarantine("n1"))
    cluster.nodes["n2"]["spec"]["unschedulable"] = True
    stands = asyncio.run(kubernetes(config).standing([HostName(f"n{n}") for n in range(1, 5)]))
    assert {host: (s.closed if s.known else None, s.order_id) for host, s in stands.items()} == {
        "n1": (True, "n1/1/quarantine"),
        "n2": (True, None),
        "n3": (False, None),
        "n4": (None, None),
    }
    assert stands[HostName("n1")].why == quarantine("n1").why
    renamed = kubernetes(replace(config, hosts=NodeNames(nodes={"new-name": "n1"})))
    (theirs,) = asyncio.run(renamed.standing([HostName("new-name")])).values()
    assert (theirs.closed, theirs.order_id, theirs.other) == (True, None, "n1/1/quarantine")


def test_a_list_without_end_is_left(config: KubernetesConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "_PAGES_MAX", 1)
    with pytest.raises(ActuatorError, match="goes on and on"):
        asyncio.run(kubernetes(config).standing([HostName("n1")]))


# ── a server that refuses ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_busy_server_is_asked_again_when_it_says(cluster: Cluster, config: KubernetesConfig) -> None:
    cluster.next_answers.append((429, {"Retry-After": "7"}, b'{"message": "too many requests"}'))
    with pytest.raises(ActuatorError, match=r"429 .* too many requests") as caught:
        do(kubernetes(config), quarantine())
    assert caught.value.retry_after_s == 7
    assert not isinstance(caught.value, ActuatorObjection)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, {"Content-Type": "text/html"}, b"<html>"), "text/html in place of application/json"),
        ((200, {}, b"{"), "no JSON"),
        ((200, {}, b"[]"), "no JSON object"),
        ((503, {}, b"down"), "answers 503"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "answers 302"),
    ],
)
def test_an_answer_that_is_none_is_no_answer(
    answer: tuple[int, dict[str, str], bytes], words: str, cluster: Cluster, config: KubernetesConfig
) -> None:
    cluster.next_answers.append(answer)
    with pytest.raises(ActuatorError, match=words):
        do(kubernetes(config), quarantine())


def test_missing_rights_are_told(cluster: Cluster, config: KubernetesConfig, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("wrong")
    with pytest.raises(ActuatorObjection, match=r"401 .*deploy/kubernetes"):
        do(kubernetes(replace(config, token=tmp_path / "other")), quarantine())
    cluster.next_answers.append((403, {}, b'{"message": "no"}'))
    with pytest.raises(ActuatorObjection, match="403"):
        do(kubernetes(config), quarantine())
    with pytest.raises(ActuatorError, match="No such file"):
        do(kubernetes(replace(config, token=tmp_path / "gone")), quarantine())


@pytest.mark.parametrize("token", ["a\rb", "two words", "caf\u00e9", "a\x00b", "x" * 70_000, ""])
def test_a_token_that_cannot_be_one_fails_the_attempt_and_is_not_sent(
    config: KubernetesConfig, tmp_path: Path, token: str
) -> None:
    (tmp_path / "odd").write_text(token)
    with pytest.raises(ActuatorError, match=r"odd: (a token is|must hold) one"):
        do(kubernetes(replace(config, token=tmp_path / "odd")), quarantine())


def test_a_server_that_is_away_is_an_error(config: KubernetesConfig) -> None:
    with pytest.raises(ActuatorError, match=r"127\.0\.0\.1:1 does not answer"):
        do(kubernetes(replace(config, server="http://127.0.0.1:1")), quarantine())


# ── pods ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_pods_with_gpus_leave_and_budgets_are_respected(cluster: Cluster, config: KubernetesConfig) -> None:
    cluster.add_pod("job", "n1")
    cluster.add_pod("kept", "n1")
    cluster.add_pod("agent", "n1", gpus=0)
    cluster.add_pod("elsewhere", "n2")
    cluster.add_pod("over", "n1", phase="Succeeded")
    cluster.protected = {"kept"}
    receipt = do(kubernetes(config), quarantine(drain=Drain.NOW))
    assert not receipt.done
    assert "1 of them are kept for now (train/kept: Cannot evict pod" in receipt.why
    assert {name for _, name in cluster.pods} == {"kept", "agent", "elsewhere", "over"}
    cluster.protected = set()
    assert not do(kubernetes(config), quarantine(drain=Drain.NOW)).done
    assert do(kubernetes(config), quarantine(drain=Drain.NOW)).done
    assert {name for _, name in cluster.pods} == {"agent", "elsewhere", "over"}


def test_pods_are_told_to_leave_and_sent_away_when_their_time_is_over(
    cluster: Cluster, config: KubernetesConfig
) -> None:
    pod = cluster.add_pod("job", "n1")
    order = quarantine(drain=Drain.CHECKPOINT)
    assert not do(kubernetes(config), order).done
    assert pod["metadata"]["annotations"][LEAVE_BY] == "2026-01-01T01:00:00Z"
    version = pod["metadata"]["resourceVersion"]
    assert not do(kubernetes(config), order).done
    assert pod["metadata"]["resourceVersion"] == version, "it is told once"
    do(kubernetes(config), release())
    assert pod["metadata"]["annotations"] == {}
    late = StillClock(wall=NOW_S + 3601)
    again = quarantine(number=3, drain=Drain.CHECKPOINT)
    assert not do(kubernetes(config, late), again).done
    assert do(kubernetes(config, late), again).done
    assert not cluster.pods


def test_the_ends_of_pods_are_heard_of_also_over_an_expired_watch(cluster: Cluster, config: KubernetesConfig) -> None:
    source = KubernetesJobs(config, api=api(config), clock=StillClock())
    hosts = [HostName("n1"), HostName("n2")]

    def heard() -> list[tuple[str, str, bool, float]]:
        return [(e.host, e.job, e.ok, e.ran_seconds) for e in asyncio.run(source.ended(hosts))]

    for name, node in (("a", "n1"), ("b", "n2"), ("c", "n1"), ("d", "n9"), ("e", "n1"), ("f", "n1")):
        cluster.add_pod(name, node)
    cluster.add_pod("g", "n1", gpus=0)
    cluster.end_pod("a", "Succeeded")
    assert heard() == [("n1", "train/a", True, 10.0)]
    cluster.end_pod("b", "Failed", ran_seconds=3)
    cluster.end_pod("d", "Failed")
    cluster.end_pod("f", "Failed", reason="Evicted")
    cluster.end_pod("g", "Failed")
    assert heard() == [("n2", "train/b", False, 3.0)]
    assert heard() == []
    cluster.end_pod("c", "Failed")
    cluster.expire()
    assert ("n1", "train/c", False, 10.0) in heard(), "it is listed again"
    cluster.end_pod("e", "Succeeded")
    assert heard() == [("n1", "train/e", True, 10.0)]


def test_pods_that_ended_long_ago_are_no_news(cluster: Cluster, config: KubernetesConfig) -> None:
    cluster.add_pod("old", "n1")
    cluster.end_pod("old", "Failed")
    late = StillClock(wall=NOW_S + 3700)
    assert asyncio.run(KubernetesJobs(config, api=api(config), clock=late).ended([HostName("n1")])) == ()


def test_no_right_is_asked_for_that_is_not_used(cluster: Cluster, config: KubernetesConfig) -> None:
    cluster.add_pod("job", "n1")
    do(kubernetes(config), quarantine(drain=Drain.CHECKPOINT))
    do(kubernetes(config, StillClock(wall=NOW_S + 3601)), quarantine(drain=Drain.CHECKPOINT))
    asyncio.run(kubernetes(config).standing([HostName("n1")]))
    source = KubernetesJobs(config, api=api(config), clock=StillClock())
    asyncio.run(source.ended([]))
    asyncio.run(source.ended([]))
    assert set(cluster.asked) == granted()
