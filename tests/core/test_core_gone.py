"""GPUs that are gone: a burn-in of the others is no proof, whatever came first; a person may take the host as it is."""

from dataclasses import replace

import pytest

from fleetd.core.limits import Returns
from fleetd.core.policy import Policy
from fleetd.core.step import Step
from fleetd.model.event import (
    AgentConnected,
    GpuSwapped,
    OperatorBurnin,
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepaired,
    OperatorRepairs,
    TimePassed,
)
from fleetd.model.finding import FaultClass, Severity, Verdict
from fleetd.model.host import Host, Lifecycle
from fleetd.model.order import Notify, Quarantine, Release, RunBurnin
from fleetd.stores.codec import dump_host, load_host
from tests.core.make_core import H1, POLICY, Driven, burnt, fault, hello

AUTOMATIC = replace(POLICY, returns=Returns.AUTOMATIC)
HELD = fault(FaultClass.UNRESPONSIVE, Severity.FATAL, id="gone", gpu="G1")


def passes(d: Driven) -> Step[Host]:
    """The burn-in that the host waits for passes."""
    assert d.known.boot_id is not None
    return d.send(burnt(Verdict.PASS, order=d.pending, id=f"pass {d.pending}", boot=d.known.boot_id))


def held(policy: Policy = AUTOMATIC, *, gpu: str | None = "G1", shows: AgentConnected | None = None) -> Driven:
    """A host that is held for a GPU and comes back without its last one."""
    d = Driven(policy).healthy()
    d.send(fault(FaultClass.UNRESPONSIVE, Severity.FATAL, id="gone", gpu=gpu))
    d.send(shows if shows is not None else hello(gpus=1))
    return d


def release(*, override: bool = False) -> OperatorReleased:
    return OperatorReleased(host=H1, who="ann", reason="we need it", override=override)


@pytest.mark.parametrize("returns", Returns)
@pytest.mark.parametrize("boot", ["b1", "b2"])
@pytest.mark.parametrize("accused", ["G1", "G0", None])
def test_the_others_prove_nothing_and_a_human_is_told_once(returns: Returns, boot: str, accused: str | None) -> None:
    d = held(replace(POLICY, returns=returns), gpu=accused, shows=hello(boot=boot, gpus=1))
    step = passes(d)
    assert (step.state.state, step.state.proof, step.state.gone) == (Lifecycle.QUARANTINED, None, ("G1",))
    assert [type(o) for o in step.orders] == [Notify]
    assert "1 of 2 GPUs is gone (G1): a burn-in of the others proves nothing about it" in step.state.why
    d.send(OperatorBurnin(host=H1, who="ann", reason="again", level=None))
    assert passes(d).orders == ()
    refused = d.send(release())
    assert refused.refused
    assert "1 of 2 GPUs is gone (G1)" in refused.why


def test_the_hold_may_come_after_the_gpu_went() -> None:
    d = Driven(AUTOMATIC).healthy()
    d.send(hello(gpus=1))
    step = passes(d)
    assert step.state.state is Lifecycle.HEALTHY
    assert step.state.why == "burn-in `smoke` passed; 1 of 2 GPUs is gone (G1)"
    step = d.send(HELD)
    assert (step.state.state, step.state.proof) == (Lifecycle.QUARANTINED, None)
    d.send(OperatorBurnin(host=H1, who="ann", reason="again", level=None))
    assert passes(d).state.held


def test_a_late_failure_of_an_earlier_boot_is_not_cured_by_a_proof_without_the_gpu() -> None:
    d = Driven(AUTOMATIC).healthy()
    d.send(hello(boot="b2", gpus=1))
    passes(d)
    step = d.send(burnt(Verdict.FAIL, ("G1", FaultClass.CHIP_PERSISTENT), order=None, id="late", boot="b1"))
    assert (step.state.state, step.state.proof) == (Lifecycle.QUARANTINED, None)


def test_what_is_withheld_stands_as_long_as_the_gpu_is_gone() -> None:
    d = Driven(AUTOMATIC).healthy().others(3, held=2)
    assert d.send(HELD).withheld
    d.send(hello(gpus=1))
    step = passes(d)
    assert (step.state.state, len(step.state.charges), step.state.proof) == (Lifecycle.SUSPECT, 1, None)


@pytest.mark.parametrize("back", [hello(boot="b2"), hello(boot="b2", first=5), hello(boot="b2", gpus=3)])
def test_a_gpu_that_is_back_or_another_in_its_place_is_proven_with_the_rest(back: AgentConnected) -> None:
    d = held()
    passes(d)
    step = d.send(back)
    assert (step.state.gone, [type(o) for o in step.orders]) == ((), [RunBurnin])
    step = passes(d)
    assert (step.state.held, [type(o) for o in step.orders]) == (False, [Release])


def test_a_gpu_replaced_at_once_is_not_gone() -> None:
    d = held(shows=hello(boot="b2", first=1))
    assert [type(o) for o in passes(d).orders] == [Release]


def test_saying_what_replaces_it_does_not_put_it_in() -> None:
    d = held()
    gpu = hello(first=7).hello.inventory[0].gpu
    d.send(GpuSwapped(host=H1, who="ann", reason="exchanged", old=d.known.gone[0], new=gpu))
    assert d.known.gone == ("G1",)


def test_of_several_the_last_that_went_are_missed() -> None:
    d = Driven().healthy()
    d.send(hello(boot="b2", gpus=4))
    d.send(hello(boot="b3", gpus=3))
    d.send(hello(boot="b4", gpus=0))
    assert d.known.gone == ("G3", "G0", "G1", "G2")
    d.send(OperatorQuarantined(host=H1, who="ann", reason="fan"))
    assert "4 of 4 GPUs are gone (G3, G0, G1 and 1 more)" in d.send(release()).why
    d.send(hello(boot="b5", first=8, gpus=2))
    assert d.known.gone == ("G1", "G2")


def test_an_agent_without_its_driver_shows_no_gpu_and_all_are_back_with_it() -> None:
    d = held(shows=hello(boot="b2", gpus=0))
    assert passes(d).state.gone == ("G0", "G1")
    d.send(hello(boot="b2"))
    assert [type(o) for o in passes(d).orders] == [Release]


def test_a_new_host_has_what_it_shows_first_and_nobody_awaits_what_was_never_there() -> None:
    d = Driven(AUTOMATIC)
    d.send(hello(gpus=0))
    d.send(hello(gpus=1))
    passes(d)
    d.send(fault(FaultClass.UNRESPONSIVE, Severity.FATAL, id="x", gpu="G0"))
    d.send(hello(boot="b2", gpus=1))
    assert [type(o) for o in passes(d).orders] == [Release]


def test_an_override_takes_the_host_as_it_is() -> None:
    d = held()
    passes(d)
    step = d.send(release(override=True))
    assert (step.state.state, step.state.gone) == (Lifecycle.PROBATION, ())
    assert "missing: " in step.why
    assert "1 of 2 GPUs is gone (G1)" in step.why
    d.send(fault(FaultClass.UNRESPONSIVE, Severity.FATAL, id="other", gpu="G0"))
    d.send(hello(boot="b2", gpus=1))
    assert [type(o) for o in passes(d).orders] == [Release]


def test_a_repair_is_over_and_the_gpu_still_gone() -> None:
    d = held()
    d.send(OperatorRepairs(host=H1, who="ann", reason="reseat"))
    step = d.send(OperatorRepaired(host=H1, who="ann", reason="reseated"))
    assert step.state.state is Lifecycle.QUARANTINED
    assert "it will prove nothing: 1 of 2 GPUs is gone (G1)" in step.why
    assert passes(d).state.held


def test_a_gpu_that_goes_while_the_repair_is_proven_ends_the_qualification() -> None:
    d = Driven(AUTOMATIC).healthy()
    d.send(HELD)
    d.send(OperatorRepairs(host=H1, who="ann", reason="reseat"))
    d.send(OperatorRepaired(host=H1, who="ann", reason="reseated"))
    assert d.known.state is Lifecycle.QUALIFYING
    d.send(hello(boot="b2", gpus=1))
    assert passes(d).state.state is Lifecycle.QUARANTINED


def test_a_persons_hold_that_expires_gives_the_host_back_and_tells_that_a_gpu_is_gone() -> None:
    d = Driven(AUTOMATIC).healthy()
    step = d.send(OperatorQuarantined(host=H1, who="ann", reason="fan", expires_at_s=50.0))
    assert [type(o) for o in step.orders] == [Quarantine]
    d.send(hello(gpus=1))
    step = d.send(TimePassed(host=H1, connected=True), at_s=60.0)
    assert [type(o) for o in step.orders] == [Release, Notify]
    assert "1 of 2 GPUs is gone (G1)" in step.orders[1].why


def test_a_host_of_an_older_ledger_should_have_what_it_showed_then() -> None:
    d = Driven().healthy()
    text = dump_host(d.known)
    assert ',"gone":[]' in text
    d.replay.hosts[H1] = old = load_host(text.replace(',"gone":[]', ""))
    assert old.gone == ()
    d.send(hello(boot="b2", gpus=1))
    assert load_host(dump_host(d.known)).gone == ("G1",)
