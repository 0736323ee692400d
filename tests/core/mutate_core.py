"""Runs the fast tests of the core on deliberately wrong copies of it; one forked process a mistake.

`python tests/core/mutate_core.py` prints a JSON object: name of each mistake → whether the tests noticed it. The name
`none` stands for the core as it is. `test_core_mutations.py` reads it.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "fleetd" / "core"

DID_NOT_RUN = 99

TESTS = (
    "judge",
    "evidence",
    "fleet",
    "people",
    "policy",
    "policycheck",
    "outliers",
    "inbox",
    "intent",
    "rehearse",
    "earlier",
    "gone",
    "stories",
)
"""The fast tests: tables and stories, no state machine."""

MISTAKES: dict[str, tuple[str, str, str, str]] = {
    "one host too many fits into a budget": ("budget", "if have >= allowed:", "if have > allowed:", "evidence"),
    "one order too many fits into a window": ("budget", "if recent >= budget.max_in_window:", "if False:", "evidence"),
    "a tripped budget lets the next one through": ("budget", "if key in tripped:", "if False:", "fleet"),
    "a storm begins one host late": ("storm", "len(everyone) < at_least", "len(everyone) <= at_least", "fleet"),
    "a storm ends by itself": ("storm", "(i.kind, i.key) == (kind, key)", "False", "fleet"),
    "a stronger level proves nothing, a weaker one does": (
        "policy",
        "LEVELS.index(passed) >= LEVELS.index(asked)",
        "LEVELS.index(passed) <= LEVELS.index(asked)",
        "policy",
    ),
    "a proof before the reboot counts as one after it": (
        "lifecycle",
        "hold.after_reboot and hold.boot_id == self.host.boot_id",
        "False",
        "fleet",
    ),
    "software is taken for hardware": ("accuse", "if not accusation.fault_class.is_hardware:", "if False:", "evidence"),
    "applications condemn hosts": ("accuse", "if accusation.scope is Scope.APP:", "if False:", "evidence"),
    "evidence of the last boot undoes the proof of this one": (
        "evidence",
        "if finding.boot_id == draft.host.boot_id:",
        "if True:",
        "judge",
    ),
    "new evidence leaves the old proof": ("evidence", "        draft.set(proof=None)\n", "        pass\n", "evidence"),
    "a held host is quarantined again": (
        "evidence",
        "    if draft.host.held:\n        _add",
        "    if False:\n        _add",
        "evidence",
    ),
    "re-arming a budget overrides the kill switch": (
        "evidence",
        "draft.record.stopped is not None or",
        "False or",
        "fleet",
    ),
    "an agent that is away runs out of time": ("waiting", "    if event.connected:\n", "    if True:\n", "judge"),
    "an order that never arrived uses up an attempt": (
        "waiting",
        "if pending is None or pending.accepted or",
        "if True or",
        "judge",
    ),
    "the kill switch uses up attempts": (
        "waiting",
        "if draft.record.stopped is not None and not",
        "if False and not",
        "intent",
    ),
    "the kill switch forgets what was decided": (
        "intent",
        "if stopped is None or isinstance",
        "if True or isinstance",
        "intent",
    ),
    "the kill switch stops people": ("intent", "hold.owner in AUTOMATIC for hold", "True for hold", "intent"),
    "sound hosts may be called lost": ("policycheck", "if after_s < slowest_return_s:", "if False:", "policycheck"),
    "a probation never ends": ("waiting", "draft.now_s >= until_s:", "False:", "people"),
    "our holds lift with a foreign one": (
        "waiting",
        "hold.owner == FLEETD and hold.proof_level is not None",
        "True",
        "people",
    ),
    "a second machine is listened to": ("hello", "if hello.boot_id in before.boots:", "if False:", "people"),
    "a reboot cures": (
        "hello",
        "draft.set(proof=None, pending=None, due=None,",
        "draft.set(pending=None, due=None,",
        "judge",
    ),
    "a moved GPU leaves its hold behind": ("hello", "if hold.owner == FLEETD:", "if False:", "fleet"),
    "a partition needs one host more": ("silence", "away >= max(", "away > max(", "fleet"),
    "resets are tried once too often": ("repair", "times <= repair.resets:", "times <= repair.resets + 1:", "fleet"),
    "two hosts overrule a third": ("ballots", "v.total >= MIN_MAJORITY", "v.total >= 2", "fleet"),
    "a pass that names a culprit is believed": ("judgement", " and not finding.culprits:", ":", "judge"),
    "an operator lifts anybody's hold": (
        "operators",
        "return None if hold.owner == owner else",
        "return None if 1 else",
        "judge",
    ),
    "a closed incident judges everybody": (
        "fleetwide",
        "if all(charge.key != key",
        "if any(charge.key != key",
        "fleet",
    ),
    "a clock set back silences": (
        "lifecycle",
        "if before is not None and 0 <= self",
        "if before is not None and -9e9 < self",
        "people",
    ),
    "the kill switch lets burn-ins through": (
        "lifecycle",
        "if self.record.stopped is not None and not by",
        "if not by",
        "judge",
    ),
    "a repeated finding is stored again": ("inbox", "if seq <= stored_seq:", "if seq < stored_seq:", "inbox"),
    "retired hosts count": ("fleet", "        if host.state is Lifecycle.RETIRED:\n            return\n", "", "people"),
    "a cancelled quarantine is carried out": (
        "intent",
        "if host is None or not host.held:",
        "if host is None:",
        "stories",
    ),
    "a release lifts a hold that came after it": (
        "intent",
        "if host is not None and host.held:",
        "if False:",
        "stories",
    ),
    "a burn-in starts under a repair": (
        "intent",
        "if host.state in {Lifecycle.REPAIRING, Lifecycle.RETIRED}:",
        "if False:",
        "stories",
    ),
    "a burn-in that nobody waits for is run": ("intent", "host.pending.order_id != order.id", "False", "stories"),
    "one job counts as often as it fails": ("jobs", "if f.job != job]", "]", "stories"),
    "a job that fails everywhere counts": ("jobs", "and f.job not in shared", "", "stories"),
    "jobs that fail everywhere blame a host": ("jobs", "if failing > limits", "if failing > 9 + limits", "stories"),
    "failed jobs of long ago count": ("jobs", "if f.at_s > since_s and", "if", "stories"),
    "a long job that fails accuses": ("jobs", "event.ran_seconds > limits.ran_at_most_seconds", "False", "stories"),
    "failures count again after the burn-in": (
        "jobs",
        "draft.set(proof=None, failed_jobs=())",
        "draft.set(proof=None)",
        "stories",
    ),
    "an old record is news": (
        "storm",
        "isinstance(finding, DeviceFault) and finding.boot_id !=",
        "finding.boot_id is",
        "fleet",
    ),
    "an old record counts in a storm": ("fleet", "or not outdated(event.finding, host)", "or True", "fleet"),
    "a storm is laid on a driver that not all have": (
        "evidence",
        "if len(drivers) == 1 and",
        "if drivers and",
        "fleet",
    ),
    "a code that nothing reports passes": (
        "policycheck",
        "if code is None or any(",
        "if code is None or not any(",
        "policycheck",
    ),
    "a journal may have gaps": ("chain", "if position != last + 1:", "if False:", "rehearse"),
    "a journal may end early": ("chain", "    if missing:\n", "    if False:\n", "rehearse"),
    "what an earlier ledger closed is opened": (
        "scheduler",
        "if event.order_id is not None and not earlier.knows(draft.host, event.order_id):",
        "if False:",
        "earlier",
    ),
    "a number of this ledger makes an order its own": (
        "earlier",
        "order_id in host.closings or number < host.closings_from",
        "True",
        "earlier",
    ),
    "a ledger that was put back knows what it left out": (
        "operators",
        "closings_from=draft.host.closings_from or given + 1",
        "closings_from=draft.host.closings_from",
        "earlier",
    ),
    "what an earlier ledger closed needs no proof": (
        "operators",
        "    if hold.owner in AUTOMATIC:\n        if hold.proof_level is None or",
        "    if hold.owner in AUTOMATIC:\n        if hold.owner != 'fleetd' or",
        "earlier",
    ),
    "what an earlier ledger closed comes back by itself": (
        "waiting",
        "ours = all(hold.owner == FLEETD and",
        "ours = all(hold.owner != 'operator' and",
        "earlier",
    ),
    "a release has a number that the scheduler takes for an old one": (
        "earlier",
        "orders_issued=max(host.orders_issued, ",
        "orders_issued=min(host.orders_issued, ",
        "earlier",
    ),
    "a new ledger gives numbers that were given before": (
        "newcomer",
        "orders_issued=max(0, int((now_s - NUMBERS_BEGIN_S) / NUMBER_SECONDS)),",
        "orders_issued=0,",
        "earlier",
    ),
    "an old proof cures what an earlier ledger closed": ("earlier", "proof=None,  #", "#", "earlier"),
    "a burn-in proves a GPU that is gone": ("lifecycle", "if lacks is not None:", "if False:", "gone"),
    "a proof without a GPU outlives a hold": (
        "lifecycle",
        "        if self.host.gone:\n",
        "        if False:\n",
        "gone",
    ),
    "whoever overrides must do so again": ("operators", "charges=(), gone=())", "charges=())", "gone"),
    "a GPU that was replaced is missed": ("gone", "if lacking > 0 else ()", "if absent else ()", "gone"),
    "faster is a fault": ("outliers", "direction * (value - middle) >= 0", "True", "outliers"),
}
"""Name → (module, what stands there once, what would be wrong, the tests that are run first: alone if they notice)."""


class _Wrong(importlib.machinery.SourceFileLoader):
    """Loads a module with one piece of its source replaced."""

    def __init__(self, name: str, path: str, old: str, new: str) -> None:
        super().__init__(name, path)
        self._change = (old, new)

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the loader's protocol
        """Compile the wrong source, past the cache of the right one."""
        source = Path(self.path).read_text()
        return compile(source.replace(*self._change), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, old: str, new: str) -> None:
        self._module, self._change = module, (old, new)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The wrong module in the place of the right one."""
        del path, target
        if fullname != f"fleetd.core.{self._module}":
            return None
        file = str(CORE / f"{self._module}.py")
        return importlib.machinery.ModuleSpec(fullname, _Wrong(fullname, file, *self._change), origin=file)


def _noticed(mistake: tuple[str, str, str] | None, tests: Sequence[str] = TESTS) -> bool:
    """Run tests in a forked process; whether one failed. Raises RuntimeError when they could not run at all."""
    child = os.fork()
    if child == 0:
        code = DID_NOT_RUN
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if mistake is not None:
                sys.meta_path.insert(0, _Finder(*mistake))
            files = [str(ROOT / "tests" / "core" / f"test_core_{name}.py") for name in tests]
            plugins = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "--assert=plain"]
            code = int(pytest.main(["-x", "-q", *plugins, *files]))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 1, 2):  # 2: a wrong core may fail while its tests are imported
        raise RuntimeError(f"{mistake}: the tests did not run (exit code {code})")
    return code != 0


if __name__ == "__main__":
    import hypothesis  # noqa: F401 - loaded once, before the forks
    import pytest

    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    results = {"none": _noticed(None)}
    for name, (module, old, new, first) in MISTAKES.items():
        mistake = (module, old, new)
        results[name] = _noticed(mistake, [first]) or _noticed(mistake)
    sys.stdout.write(json.dumps(results))
