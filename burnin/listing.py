"""Which cases a run has, what is missing here, and which planted faults can change nothing. Torch-free."""

from collections.abc import Collection, Mapping, Sequence

from burnin.declaration import Declaration
from burnin.session import Session
from burnin.spec import Case, Inject, SpecError
from burnin.telling.result import NotRun, State

ALONE = "it takes two GPUs, and this run has one"


def list_all(
    session: Session,
    declarations: Sequence[Declaration],
    inject: Mapping[str, Inject],
    *,
    borrowed: Declaration,
) -> tuple[dict[str, tuple[Case, ...]], tuple[tuple[int, str], ...]]:
    """The cases of each test; and (GPU's index, what the fault is that is to be planted on it, in words).

    Args:
        session: asked for them; its `missing` says afterwards which tests do not exist here.
        declarations: the chosen tests that have a workload.
        inject: GPU → fault to plant.
        borrowed: the exact test that the self-test uses, chosen or not.

    Raises:
        SpecError: A planted fault can change none of the chosen cases.
    """
    cases: dict[str, tuple[Case, ...]] = {}
    heard: dict[str, list[list[str]]] = {}
    for declaration in {one.id: one for one in (borrowed, *declarations)}.values():
        if declaration.together and len(session.devices) == 1:
            session.missing[declaration.id] = ALONE
            cases[declaration.id] = ()
            continue
        cases[declaration.id], *told = session.list_cases(declaration, inject)
        heard[declaration.id] = told
    # What is planted must strike what the user chose; in the self-test only when there is nothing else here.
    able = [one.id for one in declarations if one.id not in session.missing] or [borrowed.id]
    refusals, planted = ([heard[test][at] for test in able] for at in (0, 1))
    if inject and all(refusals):
        for why in zip(*refusals, strict=True):
            if all(why):
                raise SpecError(why[0])
    words = zip(*planted, strict=True) if inject and all(planted) else ()
    return cases, tuple(
        (one.gpu, next(what for what in said if what)) for one, said in zip(inject.values(), words, strict=False)
    )


def note_missing(
    session: Session, state: State, declarations: Sequence[Declaration], *, named: Collection[str]
) -> None:
    """Record what does not run here: whole tests, and cases that the library cannot compute.

    A host of one GPU has no links: only whoever names such a test asks for the impossible.
    """
    for one in declarations:
        required = state.backend in one.required
        if one.id in session.missing:
            alone = one.together and len(state.devices) == 1 and one.id not in named
            state.not_run.append(NotRun(test=one.id, why=session.missing[one.id], required=required and not alone))
        for case in session.skipped.get(one.id, ()):
            state.not_run.append(NotRun(test=one.id, why=f"{case.name}: {case.missing}", required=required))
