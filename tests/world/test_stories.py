"""What has gone wrong elsewhere, played here: hosts wrongly cordoned, stuck, or not cordoned (stories S13 to S26)."""

import pytest

from fleetd.config.faults import load_catalogue
from fleetd.model.event import FindingReceived
from fleetd.model.finding import DeviceFault, FaultClass, Scope, Severity
from fleetd.model.fleet import IncidentKind
from fleetd.model.host import Lifecycle
from fleetd.model.order import Quarantine, Release, RunBurnin
from fleetd.sim.gpu import Cure, Trouble, pci_address
from fleetd.world.outcome import Outcome
from tests.world.fakes_world import fleet

HOUR = 3600.0
SERVING = {Lifecycle.HEALTHY, Lifecycle.PROBATION}


@pytest.mark.parametrize("policy", ["observe", "default", "strict"])
def test_s13_a_fatal_fault_of_an_application_takes_no_host_away(policy: str) -> None:
    world = fleet(policy=policy)
    world.at(600).report("h01", "nvidia.xid.31", gpu=2, severity=Severity.FATAL, scope=Scope.APP)
    world.at(900).report(
        "h02", "nvidia.xid.31", gpu=2, severity=Severity.FATAL, scope=Scope.APP, fault_class=FaultClass.CHIP_PERSISTENT
    )
    world.expect(Quarantine).never()
    outcome = world.run(seconds=HOUR)
    assert not any(host.holds or host.charges for host in outcome.hosts)


def test_s14_what_has_recovered_is_free_everywhere_also_after_restarts() -> None:
    world = fleet(crew=True)
    world.at(600).plant("h02", 1, Trouble.LOST, cure=Cure.SWAP)
    world.at(2 * HOUR).kill_agent("h02").kill_controller()
    world.expect(Quarantine, host="h02").between(600, 640)
    world.expect(Release, host="h02").by(2 * HOUR)
    outcome = world.run(seconds=3 * HOUR)
    assert outcome.state("h02").state in SERVING
    assert not outcome.state("h02").holds
    assert not outcome.drained


def test_s15_a_hold_of_somebody_else_is_not_ours_to_lift() -> None:
    world = fleet(crew=True)
    world.at(600).quarantine("h02", "firmware update", who="maintenance")
    world.at(700).plant("h02", 1, Trouble.LOST, cure=Cure.SWAP)
    world.at(3 * HOUR).release("h02", "firmware is updated", who="maintenance")
    world.expect(Release, host="h02").after(3 * HOUR)
    outcome = world.run(seconds=5 * HOUR)
    assert next(t for t, e in outcome.journal if any(isinstance(o, Release) for o in e.orders)) >= 3 * HOUR
    assert outcome.state("h02").state in SERVING


def test_s16_a_burnin_ordered_before_a_reboot_is_not_run_after_it() -> None:
    world = fleet()
    world.at(600).isolate("h01")
    world.at(601).burnin("h01", "a look at it")  # on its way when the host reboots
    world.at(660).reboot("h01")
    world.at(900).rejoin("h01")
    outcome = world.run(seconds=2 * HOUR)
    ordered = [o.id for _, e in outcome.journal for o in e.orders if isinstance(o, RunBurnin) and o.host == "h01"]
    ended = [
        e.event.finding.order_id
        for _, e in outcome.journal
        if isinstance(e.event, FindingReceived) and e.event.host == "h01" and hasattr(e.event.finding, "order_id")
    ]
    assert len(ordered) == 3  # to qualify, by the operator, after the reboot
    assert ended == [ordered[0], ordered[2]]
    assert outcome.state("h01").state in SERVING


def test_s16_a_release_that_overtakes_a_slow_scheduler_is_the_last_word() -> None:
    world = fleet(actuator_refuse_ratio=0.9)
    world.at(600).quarantine("h01", "smells burnt")
    world.at(601).release("h01", "was toast")
    outcome = world.run(seconds=4 * HOUR)
    assert "h01" not in outcome.drained


def test_s17_a_driver_that_is_still_starting_is_no_fault() -> None:
    world = fleet()
    world.at(500).slow_driver("h01", 45.0)
    world.at(600).reboot("h01")
    world.expect(Lifecycle.SUSPECT, host="h01").never()
    world.expect(Quarantine).never()
    outcome = world.run(seconds=HOUR)
    assert outcome.state("h01").state in SERVING
    assert not any("unresponsive" in finding for finding in outcome.found)


@pytest.mark.parametrize("policy", ["default", "strict"])
def test_s18_links_that_a_card_never_had_are_told_and_no_more(policy: str) -> None:
    world = fleet(policy=policy)
    for gpu in range(4):
        world.at(600).report(
            "h01", "nvidia.nvlink.inactive", gpu=gpu, scope=Scope.LINK, fault_class=FaultClass.CONFIGURATION
        )
    world.expect(Quarantine).never()
    world.run(seconds=HOUR)


@pytest.mark.parametrize("ratio", [0.3, 0.5, 1.0])
def test_s19_half_the_cluster_at_once_is_an_incident_and_no_mass_quarantine(ratio: float) -> None:
    world = fleet(hosts=20)
    sick = world.settings.names()[: round(20 * ratio)]
    for number, host in enumerate(sick):
        world.at(1800.0 + number).report(
            host, "nvidia.xid.119", gpu=0, severity=Severity.FATAL, fault_class=FaultClass.UNRESPONSIVE
        )
    world.expect(Quarantine, withheld=True).after(1800)
    outcome = world.run(seconds=2 * HOUR)
    taken = {o.host for _, e in outcome.journal for o in e.orders if isinstance(o, Quarantine)}
    assert len(taken) <= 2
    assert [incident.kind for incident in outcome.image.fleet.incidents] == [IncidentKind.STORM]
    assert outcome.image.fleet.incidents[0].hosts_total >= len(sick) - len(taken)


@pytest.mark.parametrize("code", ["nvidia.xid.69", "nvidia.xid.94", "nvidia.xid.43"])
def test_s20_contained_errors_do_not_mark_a_host_for_ever(code: str) -> None:
    world = fleet()
    world.at(600).report("h01", code, gpu=1, scope=Scope.APP)
    world.at(700).report("h02", code, gpu=1, fault_class=FaultClass.MEMORY)  # contained: proven by a burn-in
    outcome = world.run(seconds=2 * HOUR)
    assert outcome.state("h01").state in SERVING
    assert outcome.state("h02").state in SERVING


@pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.HUNG, Trouble.MEMORY, Trouble.WRONG])
@pytest.mark.parametrize("at_s", [0.5, 900.0])
def test_s21_a_bad_gpu_does_not_stay_schedulable(trouble: Trouble, at_s: float) -> None:
    world = fleet()
    world.at(at_s).plant("h04", 2, trouble)
    if trouble is Trouble.WRONG and at_s > 60.0:
        world.at(at_s + 60.0).burnin("h04", "wrong results elsewhere")  # nothing else sees it
    outcome = world.run(seconds=2 * HOUR)
    assert outcome.state("h04").state is Lifecycle.QUARANTINED
    assert outcome.drained == {"h04"}
    last = [e.host.state for _, e in outcome.journal if e.host is not None and e.host.name == "h04"][-1]
    assert last is Lifecycle.QUARANTINED


def test_s22_old_lines_of_the_log_count_once() -> None:
    world = fleet()
    world.at(600).report("h02", "nvidia.xid.79", gpu=1, severity=Severity.FATAL, fault_class=FaultClass.UNRESPONSIVE)
    world.at(900).burnin("h02", "looked at it")
    world.at(1200).release("h02", "proven")
    world.at(1800).lose_state("h02")  # the agent reads the whole log of this boot again
    world.at(2400).kill_agent("h02")
    world.expect(Quarantine, host="h02").times(1)
    world.expect(Release, host="h02").times(1)
    outcome = world.run(seconds=2 * HOUR)
    assert outcome.state("h02").state in SERVING


def test_s23_a_driver_roll_out_that_makes_hosts_look_bad_is_seen_as_one() -> None:
    world = fleet(hosts=12)
    for number, host in enumerate(world.settings.names()):
        at_s = 1800.0 + 60.0 * number
        world.at(at_s).reboot(host)
        world.at(at_s + 240.0).report(
            host, "amd.ras.umc.ue", gpu=0, severity=Severity.FATAL, fault_class=FaultClass.MEMORY
        )
    outcome = world.run(seconds=3 * HOUR)
    taken = {o.host for _, e in outcome.journal for o in e.orders if isinstance(o, Quarantine)}
    assert len(taken) <= 2
    assert [incident.kind for incident in outcome.image.fleet.incidents] == [IncidentKind.STORM]


def test_s24_who_declared_a_host_fit_stands_in_its_history() -> None:
    world = fleet()
    world.at(600).plant("h02", 1, Trouble.MEMORY, cure=Cure.SWAP)
    world.at(1800).heal("h02").release("h02", "the counter was misread", override=True)
    world.at(2400).kill_agent("h02").kill_controller()
    outcome = world.run(seconds=2 * HOUR)
    assert outcome.state("h02").state in SERVING
    said = " ".join(e.why for _, e in outcome.journal if e.host is not None and e.host.name == "h02")
    assert "operator:eve" in said
    assert "the counter was misread" in said


def test_s25_one_dead_gpu_does_not_accuse_its_siblings() -> None:
    world = fleet(catalogue=load_catalogue())
    world.at(600).log(
        "h02",
        f"NVRM: Xid (PCI:{bus(1)}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        *(
            f"NVRM: Xid (PCI:{bus(gpu)}): 154, pid='<unknown>', name=<unknown>, "
            "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
            for gpu in range(4)
        ),
    )
    world.expect(Quarantine, host="h02").times(1)
    outcome = world.run(seconds=HOUR)
    assert {hold.gpu for hold in outcome.state("h02").holds} == {"SIM-h02-01"}
    assert {code for code, _ in told(outcome)} >= {"nvidia.xid.79"}
    assert {gpu for _, gpu in told(outcome)} <= {"SIM-h02-01", None}


def test_s26_faults_that_follow_from_another_are_not_held_against_the_peers() -> None:
    world = fleet(catalogue=load_catalogue())
    world.at(600).log(
        "h02",
        f"NVRM: Xid (PCI:{bus(1)}): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x004505c6 0x00000000 0x00000000)",
        *(
            f"NVRM: Xid (PCI:{bus(gpu)}): 45, pid=77, name=train, "
            "channel 0x00000002, errorString CTX SWITCH TIMEOUT, caused by previous Xid 149"
            for gpu in (0, 2, 3)
        ),
    )
    outcome = world.run(seconds=HOUR)
    accused = outcome.state("h02")
    held = {hold.gpu for hold in accused.holds} | {charge.hold.gpu for charge in accused.charges}
    assert held <= {"SIM-h02-01"}
    assert {gpu for _, gpu in told(outcome)} == {"SIM-h02-01"}
    assert {code for code, _ in told(outcome)} == {"nvidia.xid.149"}


def test_a_kernel_log_is_read_on_where_a_killed_agent_stopped_and_again_when_its_files_are_gone() -> None:
    world = fleet(catalogue=load_catalogue())
    line = f"NVRM: Xid (PCI:{bus(1)}): 79, pid=1, name=a, GPU has fallen off the bus."
    world.at(600).log("h02", line)
    world.at(700).kill_agent("h02")
    world.at(800).lose_state("h02")
    world.expect(Quarantine, host="h02").times(1)
    outcome = world.run(seconds=HOUR)
    assert len(told(outcome)) >= 1
    assert len({row.id for row in outcome.rows if isinstance(row, DeviceFault)}) == 1


def bus(gpu: int) -> str:
    """A GPU as the NVIDIA driver names it: no function behind the device."""
    return pci_address(gpu).rpartition(".")[0]


def told(outcome: Outcome) -> list[tuple[str, str | None]]:
    """(code, GPU) of every device fault that reached the controller."""
    findings = [e.event.finding for _, e in outcome.journal if isinstance(e.event, FindingReceived)]
    return [(f.code, f.gpu) for f in findings if isinstance(f, DeviceFault)]
