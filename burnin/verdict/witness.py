"""Whether the host's CPU, the witness of every golden, can be believed. Pure and torch-free.

A chip that accuses others may be the broken one. What GPUs agree on outweighs it in three cases; then no proof of the
run counts, votes still do, and what only a proof could show is not judged.
"""

from burnin.verdict.evidence import Evidence
from burnin.verdict.links import LINK_TESTS
from burnin.verdict.weigh import Basis, Round, Weighed, vote_of
from burnin.vote import Outcome


def against_the_cpu(evidence: Evidence, weighed: Weighed) -> str:
    """Why the host's CPU cannot be believed; empty when nothing speaks against it.

    Args:
        evidence: Of the run, with its proofs.
        weighed: What it amounts to.
    """
    contested = {wrong.gpu for wrong in weighed.wrongs if wrong.basis is Basis.CONTESTED}
    if len(contested) > 1:  # these GPUs have nothing in common but the CPU that accuses them
        return f"it refutes results of {len(contested)} GPUs that all others confirm"
    unheard = next((one for one in weighed.rounds if _nobody_computed(one)), None)
    if unheard is not None:
        return (
            f"{unheard.test} {unheard.case}: it proved a result that none of {len(unheard.ballots)} GPUs gave, "
            "and they agree on another"
        )
    return _confirmed_nothing(evidence, weighed)


def unproved(evidence: Evidence, test: str) -> bool:
    """Whether a test needs goldens, and the CPU that gives them is not believed."""
    needs = test not in LINK_TESTS and any(case.exact for (name, _), case in evidence.cases.items() if name == test)
    return bool(evidence.host_cpu) and needs


def _nobody_computed(one: Round) -> bool:
    """Whether a golden stands alone: its own prover, like everyone, steadily computed something else."""
    votes = {vote_of(gpu, ballot) for gpu, ballot in one.ballots.items()}
    alone = one.tally.outcome is Outcome.GOLDEN and one.tally.reference not in votes
    return alone and len(one.ballots) > 1 and len(votes) == 1


def _confirmed_nothing(evidence: Evidence, weighed: Weighed) -> str:
    """A library breaks some cases; a witness that found no right result in a run of agreeing GPUs explains all of them.

    With one GPU there is nobody to agree with it: there only the test of the CPU itself speaks for the GPU.
    """
    refuted = {(shown.test, shown.proof.case, shown.proof.seed) for shown in evidence.proofs}
    accused = {shown.gpu for shown in evidence.proofs}
    asked = [one for one in weighed.rounds if one.input in refuted]
    if (
        len(accused) > 1
        and all(shown.proof.fingerprint is None for shown in evidence.proofs)
        and all(one.tally.outcome is Outcome.UNANIMOUS for one in asked)
    ):
        return f"it confirmed none of {len(refuted)} results that all {len(evidence.devices)} GPUs agree on"
    return ""
