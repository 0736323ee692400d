"""What is always true of a host, whatever happens; checked at the end of every step, also in production."""

from fleetd.model.host import Host, Lifecycle

FLEETD = "fleetd"
"""Owner of the holds that a policy puts on."""

EARLIER = "fleetd:earlier"
"""Owner of the holds that were found in the scheduler: a fleetd closed the node, and this ledger does not know why."""

AUTOMATIC = frozenset({FLEETD, EARLIER})
"""Owners who are no person."""

SERVING = frozenset({Lifecycle.HEALTHY, Lifecycle.PROBATION})
"""States in which a host counts as serving users."""

OUT_OF_SERVICE = frozenset({Lifecycle.QUARANTINED, Lifecycle.REPAIRING})
"""States that only a held host has. A held host may also be qualifying (after a repair) or retired."""

MAX_HOLDS = 64
MAX_CHARGES = 64
MAX_EVIDENCE = 32
MAX_STRIKES = 256
MAX_MARKS = 128
MAX_BOOTS = 8
MAX_TOLD = 16
MAX_BALLOTS = 64
MAX_CLOSINGS = 32
"""Bounds of one host. Beyond them the oldest of each go; the journal keeps all."""

_IDLE = frozenset({Lifecycle.NEW, Lifecycle.RETIRED, Lifecycle.REPAIRING})
"""States in which nothing is pending."""


def check(host: Host, *, before: Host) -> None:
    """Assert what is always true of a host. Raises AssertionError, also under `python -O`: no decision is better."""
    ours = [hold for hold in host.holds if hold.owner == FLEETD]
    charged = [charge.hold for charge in host.charges]
    foreign_before = {h.owner for h in before.holds if h.owner != FLEETD}
    was_ours = any(hold.owner in AUTOMATIC for hold in before.holds)
    in_question = charged or any(hold.owner in AUTOMATIC for hold in host.holds)
    for holds_true, what in (
        (host.name == before.name, "a step changes one host"),
        (host.state not in OUT_OF_SERVICE or host.held, "out of service is a host only by a hold"),
        (not host.held or host.state in {*OUT_OF_SERVICE, Lifecycle.QUALIFYING, Lifecycle.RETIRED}, "held: not served"),
        (host.state is not Lifecycle.HEALTHY or not host.charges, "a charged host is not healthy"),
        (all(hold.evidence for hold in (*ours, *charged)), "no quarantine of ours without evidence"),
        (all(hold.fault_class.is_hardware for hold in (*ours, *charged)), "only hardware classes quarantine"),
        (all(hold.expires_at_s is None for hold in ours), "our holds go by proof, not by time"),
        (host.pending is None or host.boot_id is not None, "a pending burn-in belongs to a boot"),
        (host.pending is None or host.state not in _IDLE, "nothing is pending here"),
        (host.orders_issued >= before.orders_issued, "order numbers only grow"),
        (len(host.holds) <= MAX_HOLDS and len(host.strikes) <= MAX_STRIKES, "a host's memory is bounded"),
        (len(host.charges) <= MAX_CHARGES and len(host.marks) <= MAX_MARKS, "a host's memory is bounded"),
        (len(host.closings) <= MAX_CLOSINGS, "a host's memory is bounded"),
        (not {g.gpu for g in host.inventory} & {*host.gone}, "a GPU that is there is not gone"),
        (not host.gone or not in_question or host.proof is None, "no proof of a host while a GPU of it is gone"),
        (not host.gone or not was_ours or host.held, "no release by proof while a GPU is gone"),
        (
            foreign_before <= {h.owner for h in host.holds} or not host.held or _expired(before, host),
            "a foreign hold goes with the release of the host, or when it expires",
        ),
    ):
        if not holds_true:
            raise AssertionError(f"{host.name}: broken invariant: {what}")


def _expired(before: Host, host: Host) -> bool:
    kept = {hold.owner for hold in host.holds}
    return all(h.expires_at_s is not None for h in before.holds if h.owner != FLEETD and h.owner not in kept)
