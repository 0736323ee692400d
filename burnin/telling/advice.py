"""What to do next, in words, by the class of what was found. Torch-free."""

from typing import Any

from burnin.spec import ExitCode, FaultClass, Verdict

NEXT = {
    FaultClass.CHIP_PERSISTENT: "take the GPU out of service and have it replaced; keep this report for the vendor",
    FaultClass.CHIP_TRANSIENT: "run it again for longer; a second strike on the same GPU means out of service",
    FaultClass.MEMORY: "reset the GPU and run again; if errors come back, have it replaced",
    FaultClass.LINK: "reseat or swap what connects it, run again: does the fault stay with the GPU or its place?",
    FaultClass.SLOW: "compare its cooling, power cap and clock settings with its neighbours'; its results are right",
    FaultClass.UNRESPONSIVE: "look into the kernel log, reset the GPU or reboot the host, and run again",
}
"""What to do about a GPU, by its class."""
NEXT_OF_TEST = {
    FaultClass.CONFIGURATION: "no chip is to blame: compare driver, firmware and libraries with a host that passes",
    FaultClass.SOFTWARE_NONDETERMINISM: "no chip is to blame: the software does not repeat its own results; report the "
    "test and the versions to whoever ships it",
    FaultClass.COMM_NONDETERMINISM: "no chip is to blame: the collective adds up in another order each time; choose "
    "another algorithm where results must repeat",
}
"""What to do about a test that fails without a GPU to blame, by its class."""
UNDECIDED = "nothing was decided: remove the reason above and run again; do not take the host for good or bad"
NOBODY = "no GPU is blamed: look at the software, the configuration or the host named above"
RETURN = "nothing: no test that ran found a fault"
STAND_IN = "nothing: no test that ran found a fault; but these were stand-ins, and no GPU was tested"
DEMONSTRATION = "a fault was planted: nothing of this counts against a GPU"

MEANING = {
    ExitCode.GOOD: "0, pass: every GPU passed, on positive evidence",
    ExitCode.BAD: "1, fail: a GPU or the host is bad",
    ExitCode.NOT_JUDGED: "3, not judged: neither good nor bad",
}
"""What the exit codes of a report mean."""


def advice(report: dict[str, Any]) -> list[str]:
    """What to do, one line for each GPU or test in question; at least one line."""
    lines = [
        f"GPU {one['index']} ({one['gpu']}), {one['class']}: {NEXT[FaultClass(one['class'])]}"
        for one in report["culprits"]
        if FaultClass(one["class"]) in NEXT
    ]
    lines += [
        f"{one['id']}, {one['class']}: {NEXT_OF_TEST[FaultClass(one['class'])]}"
        for one in report["tests"]
        if one["verdict"] == Verdict.FAIL and FaultClass(one["class"]) in NEXT_OF_TEST
    ]
    if report["verdict"] == Verdict.NOT_JUDGED:
        lines.append(UNDECIDED)
    elif report["verdict"] == Verdict.FAIL and not lines:
        lines.append(NOBODY)
    if report["injected"]:
        real = "were it real: " if report["verdict"] == Verdict.FAIL else ""
        return [DEMONSTRATION, *(f"{real}{line}" for line in lines)]
    return lines or [RETURN if report["backend"] == "cuda" else STAND_IN]
