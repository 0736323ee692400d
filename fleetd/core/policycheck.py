"""What is wrong with a well-formed policy: rules that never act, quarantines without a way back, dead budgets."""

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fleetd.core.accuse import HARMLESS
from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.limits import Budget
from fleetd.core.policy import (
    LEVELS,
    MANUAL,
    Action,
    Burnin,
    Count,
    FindingKind,
    Policy,
    Returns,
    Rule,
    Stage,
    Strikes,
    When,
    covers,
)
from fleetd.model.finding import FaultClass, Scope, Severity, Verdict

_NO_ACCUSATION = frozenset({Action.NONE, Action.RESTART_APP})
"""What the catalogue asks for when an application can cause the fault on sound hardware."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, and where: a path such as `rules[2].when`."""

    path: str
    message: str


def check(
    policy: Policy,
    *,
    levels: Collection[str],
    actuator_actions: Collection[Action],
    catalogue: Catalogue | None = None,
    other_codes: Collection[str] = (),
    slowest_return_s: float = 0.0,
) -> tuple[Problem, ...]:
    """Look for contradictions.

    Unreachable rules are found when one single earlier rule matches everything that they match; several that do so
    only together are not.

    Args:
        policy: a well-formed policy.
        levels: the burn-in levels that the agents can run.
        actuator_actions: what the actuators can carry out; `none` and `monitor` need nobody.
        catalogue: what is known of the codes that rules name, a site's own included: a rule for a code that is not in
            it never acts. None: they are not compared with it.
        other_codes: codes that are no entry of the catalogue and reported all the same: the agent's own.
        slowest_return_s: how long an agent may need to connect again after a short break.

    Returns:
        The problems, in the order of the policy; empty when it is sound.
    """
    problems = [*_levels(policy, levels), *_budgets(policy), *_returns(policy), *_silence(policy, slowest_return_s)]
    for number, rule in enumerate(policy.rules):
        problems += _reach(policy.rules, number)
        problems += _then(policy, rule, number, actuator_actions)
        problems += _against(catalogue, rule, number) if catalogue is not None else ()
        codes = (*(entry.code for entry in catalogue), *other_codes) if catalogue is not None else ()
        problems += _known(codes, rule, number) if codes else ()
    return tuple(problems)


def _levels(policy: Policy, levels: Collection[str]) -> Iterator[Problem]:
    asked = [("qualify.level", policy.qualify.level)]
    asked += [(f"proofs.{c}", proof.level) for c in policy.proofs if (proof := policy.proof_of(c)) is not None]
    asked += [("outliers.burnin", policy.outliers.burnin)] if policy.outliers is not None else []
    asked += [("jobs.burnin", policy.jobs.burnin)] if policy.jobs is not None else []
    asked += [(f"rules[{n}].then", r.then.burnin) for n, r in enumerate(policy.rules) if isinstance(r.then, Burnin)]
    for path, level in asked:
        if level not in levels:
            known = ", ".join(sorted(levels, key=lambda v: LEVELS.index(v) if v in LEVELS else len(LEVELS)))
            yield Problem(path=path, message=f"no agent can run the burn-in level `{level}`; there are: {known}")
        elif not covers(level, policy.qualify.level):
            yield Problem(
                path=path,
                message=f"a pass of `{level}` clears nothing: a host is healthy by `{policy.qualify.level}` or more",
            )


def _budgets(policy: Policy) -> Iterator[Problem]:
    budgets = policy.budgets
    yield from _budget("budgets.quarantines", budgets.quarantines)
    for area, budget in budgets.quarantines_by.items():
        yield from _budget(f"budgets.quarantines_by.{area}", budget)
    if budgets.burnins is not None and budgets.burnins.max_ratio == 0 and budgets.burnins.at_least == 0:
        message = "max_ratio 0 with at_least 0 is a budget of 0: no host that serves users is ever looked at again"
        yield Problem(path="budgets.burnins", message=message)


def _budget(path: str, budget: Budget) -> Iterator[Problem]:
    if budget.max_in_window == 0:
        yield Problem(path=f"{path}.max_in_window", message="a budget of 0 withholds every quarantine")
    if budget.max_ratio == 0 and budget.at_least == 0:
        yield Problem(path=path, message="max_ratio 0 with at_least 0 is a budget of 0: it withholds every quarantine")


def _returns(policy: Policy) -> Iterator[Problem]:
    provable = any(policy.proof_of(fault_class) is not None for fault_class in policy.proofs)
    if policy.returns is Returns.AUTOMATIC and not provable:
        yield Problem(path="returns", message="nothing returns by itself: `proofs` names no level for any class")


def _silence(policy: Policy, slowest_return_s: float) -> Iterator[Problem]:
    after_s = policy.silence.after_seconds
    if after_s < slowest_return_s:
        message = f"an agent may need {slowest_return_s:g} seconds to connect again: {after_s:g} calls sound hosts lost"
        yield Problem(path="silence.after_seconds", message=message)


# ── rules that never act ────────────────────────────────────────────────────────────────────────────────────────────


def _reach(rules: tuple[Rule, ...], number: int) -> Iterator[Problem]:
    rule = rules[number]
    if any(earlier.name == rule.name for earlier in rules[:number]):
        yield Problem(path=f"rules[{number}].name", message=f"a rule named `{rule.name}` stands above already")
    never = _never(rule.when)
    if never is not None:
        yield Problem(path=f"rules[{number}].when", message=f"rule `{rule.name}` can never match: {never}")
        return
    for earlier in rules[:number]:
        if _never(earlier.when) is None and _matches_all_of(earlier.when, rule.when):
            yield Problem(
                path=f"rules[{number}].when",
                message=f"rule `{rule.name}` is never reached: `{earlier.name}` above it matches all that it matches",
            )
            return


def _never(when: When) -> str | None:
    """Why no finding can match."""
    if when.verdict not in (None, Verdict.FAIL):
        return f"a burn-in that ended as {when.verdict} is no accusation, only `fail` reaches the rules"
    burnin = when.finding is FindingKind.BURNIN or when.verdict is not None
    if burnin and (when.finding is FindingKind.DEVICE or _of_devices(when)):
        return "code, scope, count and severity_at_least are of device faults, verdict is of burn-ins"
    return None


def _of_devices(when: When) -> bool:
    """Whether a matcher is given that only device faults can satisfy."""
    return any(m is not None for m in (when.code, when.severity_at_least, when.scope, when.count))


def _kind(when: When) -> FindingKind | None:
    """The kind of finding that can match at all; None: both."""
    if when.finding is not None:
        return when.finding
    if when.verdict is not None:
        return FindingKind.BURNIN
    return FindingKind.DEVICE if _of_devices(when) else None


def _matches_all_of(wide: When, narrow: When) -> bool:
    """Whether everything that `narrow` matches is matched by `wide`. Both can match something."""
    return (
        _kind(wide) in (None, _kind(narrow))
        and _classes(narrow) <= _classes(wide)
        and _glob(wide.code, narrow.code)
        and (wide.pool in (None, "*") or _glob(wide.pool, narrow.pool))
        and (wide.sku in (None, "*") or _glob(wide.sku, narrow.sku))
        and (wide.scope is None or frozenset(narrow.scope or Scope) <= frozenset(wide.scope))
        and (wide.severity_at_least or Severity.INFO) <= (narrow.severity_at_least or Severity.INFO)
        and _often(wide.strikes, narrow.strikes)
        and _often(wide.count, narrow.count)
    )


def _glob(wide: str | None, narrow: str | None) -> bool:
    # `*` in the narrow pattern is an ordinary character here, which only a `*` of the wide one can match.
    return wide is None or (narrow is not None and fnmatchcase(narrow, wide))


def _often(wide: Strikes | Count | None, narrow: Strikes | Count | None) -> bool:
    return wide is None or (
        narrow is not None and wide.at_least <= narrow.at_least and wide.within_seconds >= narrow.within_seconds
    )


def _classes(when: When) -> frozenset[FaultClass]:
    return frozenset(FaultClass if when.fault_class is None else when.fault_class)


# ── what a rule does ────────────────────────────────────────────────────────────────────────────────────────────────


def _then(policy: Policy, rule: Rule, number: int, actuator_actions: Collection[Action]) -> Iterator[Problem]:
    if isinstance(rule.then, Burnin):
        return
    path = f"rules[{number}].then"
    if rule.then not in HARMLESS and rule.then not in actuator_actions:
        yield Problem(path=path, message=f"no actuator can `{rule.then}`: a human would only be told")
    if rule.then is not Action.QUARANTINE:
        return
    classes = _classes(rule.when)
    soft = sorted(c for c in classes if not c.is_hardware)
    if soft:
        yield Problem(
            path=path,
            message=f"rule `{rule.name}` quarantines for {', '.join(soft)}, which is no evidence against the hardware",
        )
    unproven = sorted(c for c in classes if c.is_hardware and c not in policy.proofs)
    if unproven and rule.stage is Stage.ENFORCE:
        yield Problem(
            path=path,
            message=f"rule `{rule.name}` quarantines without an exit: `proofs` has no level and no `{MANUAL}` for "
            f"{', '.join(unproven)}",
        )


def _against(catalogue: Catalogue, rule: Rule, number: int) -> Iterator[Problem]:
    """Compare a rule for one code with what the catalogue knows of it; a pattern of codes stands for many."""
    code = rule.when.code
    if rule.then is not Action.QUARANTINE or code is None or "*" in code:
        return
    entry = catalogue.entry(code)
    if entry.known and (entry.scope is Scope.APP or entry.action in _NO_ACCUSATION):
        yield Problem(
            path=f"rules[{number}].then",
            message=f"rule `{rule.name}` quarantines for {code}, which an application can cause",
        )


def _known(codes: Collection[str], rule: Rule, number: int) -> Iterator[Problem]:
    """A rule for a code that the agents never report: a slip of the pen makes it silent, not wrong."""
    code = rule.when.code
    if code is None or any(_overlap(code, known) for known in codes):
        return
    near = difflib.get_close_matches(code, codes, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    yield Problem(
        path=f"rules[{number}].when.code",
        message=f"rule `{rule.name}` can never match: nothing reports the code `{code}`{hint}",
    )


def _overlap(one: str, other: str) -> bool:
    """Whether some text matches both patterns; `*` stands for any text. Linear in the product of their lengths."""
    reached = {0}  # positions in `other` up to which what was read of `one` can be matched
    for sign in one:
        if sign == "*":
            reached = set(range(min(reached, default=len(other) + 1), len(other) + 1))
            continue
        # A `*` of the other pattern swallows the sign and stays.
        reached = _past_stars(other, reached)
        reached = {n for n in reached if other[n : n + 1] == "*"} | {n + 1 for n in reached if other[n : n + 1] == sign}
    return len(other) in _past_stars(other, reached)


def _past_stars(pattern: str, positions: set[int]) -> set[int]:
    """The positions, and those behind the stars that begin at them."""
    found = set(positions)
    for n in range(len(pattern)):
        if n in found and pattern[n] == "*":
            found.add(n + 1)
    return found
