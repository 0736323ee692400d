"""The limit of the log: bounded by kind, nothing lost without saying so."""

from fleetd.core.log_limit import KINDS_MAX, LINES_MAX, WINDOW_S, Window, admit


def test_the_first_lines_are_shown_and_the_next_window_says_how_many_were_not() -> None:
    state: dict[str, Window] = {}
    shown = []
    for line in range(10 * LINES_MAX):
        admission = admit(state, "error finding_not_spooled", now_s=5.0 + line * 1e-3)
        state = dict(admission.state)
        shown.append(admission.shown)
        assert admission.why
    assert shown == [True] * LINES_MAX + [False] * 9 * LINES_MAX
    later = admit(state, "error finding_not_spooled", now_s=5.0 + WINDOW_S)
    assert (later.shown, later.withheld_before) == (True, 9 * LINES_MAX)
    again = admit(later.state, "error finding_not_spooled", now_s=6.0 + WINDOW_S)
    assert (again.shown, again.withheld_before) == (True, 0)


def test_one_kind_does_not_silence_another() -> None:
    state: dict[str, Window] = {}
    for _ in range(2 * LINES_MAX):
        state = dict(admit(state, "warning flood", now_s=0.0).state)
    assert not admit(state, "warning flood", now_s=0.0).shown
    assert admit(state, "error silent", now_s=0.0).shown


def test_kinds_without_end_share_one_window() -> None:
    state: dict[str, Window] = {}
    shown = 0
    for kind in range(10 * KINDS_MAX):
        admission = admit(state, f"info {kind}", now_s=0.0)
        state, shown = dict(admission.state), shown + admission.shown
    assert len(state) == KINDS_MAX + 1
    assert shown == KINDS_MAX + LINES_MAX
