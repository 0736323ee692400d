"""What stands against this host, kept from what goes through the spool: whoever sees a fault tells it there."""

from fleetd.agent.standing_file import StandingFile
from fleetd.core import gate
from fleetd.core.detect import Detected
from fleetd.core.detect_rules import CODES
from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.policy import Action
from fleetd.model.finding import SILENCES, BurninEnded, DeviceFault, FaultClass, Finding, Severity, Verdict
from fleetd.model.ids import SpoolId
from fleetd.ports import Clock, Spool, Spooled

_BURNIN = "burnin.failed"


class StandingSpool:
    """A `Spool` that remembers what it was told."""

    def __init__(self, spool: Spool, *, catalogue: Catalogue, clock: Clock, file: StandingFile | None = None) -> None:
        """`file` keeps what stands over a restart of the agent; None: it is forgotten with it."""
        self._spool = spool
        self._catalogue = catalogue
        self._clock = clock
        self._file = file
        self._faults: gate.Faults = {} if file is None else file.load(now_s=clock.elapsed_s())

    @property
    def id(self) -> SpoolId:
        """See `Spool`."""
        return self._spool.id

    def append(self, finding: Finding) -> int:
        """See `Spool`; what could not be spooled stands nevertheless."""
        match finding:
            case DeviceFault():
                self._stand(finding)
            case BurninEnded():
                self._burnt(finding)
        return self._spool.append(finding)

    def pending(self, *, after_seq: int, limit: int) -> tuple[Spooled, ...]:
        """See `Spool`."""
        return self._spool.pending(after_seq=after_seq, limit=limit)

    def acknowledge(self, seq: int) -> None:
        """See `Spool`."""
        self._spool.acknowledge(seq)

    async def wait(self, *, after_seq: int) -> None:
        """See `Spool`."""
        await self._spool.wait(after_seq=after_seq)

    def ended(self, episodes: tuple[Detected, ...]) -> None:
        """The detection has proof that these are over. Once a round; what the disk refused is written again then."""
        after = self._faults
        for one in episodes:
            after = gate.ended(after, one.code, one.gpu, now_s=self._clock.elapsed_s())
        self._become(after)

    def faults(self) -> gate.Faults:
        """What stands now."""
        self._faults = gate.expire(self._faults, now_s=self._clock.elapsed_s())
        return self._faults

    def _become(self, faults: gate.Faults) -> None:
        changed, self._faults = faults != self._faults, faults
        if self._file is not None and (changed or not self._file.saved):
            self._file.save(faults)

    def _stand(self, fault: DeviceFault) -> None:
        if fault.code in SILENCES:
            return  # told by the sampler, which also knows when they end: they are judged from its state
        entry = self._catalogue.entry(fault.code)
        one = gate.Standing(
            code=fault.code,
            gpu=fault.gpu,
            severity=fault.severity,
            action=entry.action,
            clear=entry.clear,
            why=fault.why,
            at_s=fault.at_s,
            last_s=self._clock.elapsed_s(),
            lasts=fault.code in CODES,
        )
        self._become(gate.put(self._faults, one))

    def _burnt(self, ended: BurninEnded) -> None:
        if ended.verdict is Verdict.PASS:
            self._become(gate.proven(self._faults))
        if ended.verdict is not Verdict.FAIL or ended.fault_class in {FaultClass.SLOW, FaultClass.NONE}:
            return
        one = gate.Standing(
            code=_BURNIN,
            gpu=ended.culprits[0].gpu if ended.culprits else None,
            severity=Severity.ERROR,
            action=Action.DRAIN,
            clear="on_test(smoke)",
            why=ended.why,
            at_s=ended.at_s,
            last_s=self._clock.elapsed_s(),
        )
        self._become(gate.put(self._faults, one))
