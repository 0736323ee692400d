"""`fleetd power status` and `fleetd power restore`: what holds the power of this host, and letting go of it."""

import json
import os
import socket as sockets
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import click
import msgspec

from fleetd.agent.governor_config import SOCKET
from fleetd.agent.status_client import NoAnswer, ask
from fleetd.cli.check import socket_option
from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.cli.jsonout import write_json

SCHEMA = "fleetd.power.status/1"
STATE = Path("/var/lib/fleetd-power/state.json")
_TIMEOUT_S = 5.0
_BYTES_MAX = 1 << 20

guard_option = click.option(
    "--guard",
    type=click.Path(path_type=Path),
    default=SOCKET,
    show_default=True,
    help="The power guard's Unix socket.",
)


class _NoGuard(Exception):  # noqa: N818 - it says what there is not
    """Nobody listens at the socket."""


class _Answer(TypedDict):
    """What every answer of the guard has."""

    ok: bool
    why: NotRequired[str]
    errors: NotRequired[dict[str, str]]


class _Held(TypedDict):
    """What is shown of the guard's status."""

    pid: int
    live: bool
    left_seconds: float | None
    fallen: str
    renewed_total: int
    program_replaced: bool
    lacking: str
    errors: dict[str, str]


class _Seen(TypedDict):
    """What is shown of a GPU's last minute."""

    windows_watts: dict[str, float]
    swing_watts: float


class _Gpu(TypedDict):
    """What is shown of a GPU under the governor."""

    gpu: str
    mode: str
    why: str
    set_watts: dict[str, float]
    enforced_watts: float | None
    writer: str
    clock_limit_hertz: NotRequired[float | None]
    seen: NotRequired[_Seen | None]


class _Budget(TypedDict):
    """What is shown of the host's part of the power budgets."""

    watts: float
    safe_watts: float
    demand_watts: float
    left_s: float
    why: str


class _Governor(TypedDict):
    """What is shown of the agent's status."""

    allowed: str
    envelope: str
    set_point: str
    unenforceable: NotRequired[str]
    gpus: list[_Gpu]
    tbp_watts: NotRequired[float]
    budget: NotRequired[_Budget | None]


def _understood(found: object, kind: Any, who: str) -> None:
    """Make sure of what another process said, which may be of another version. Raises Failure."""
    try:
        msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        why = f"{who} answers what this fleetd does not understand ({error}); are they of one version?"
        raise Failure(why, exit_code=CANNOT_JUDGE) from None


def _ask_guard(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The guard's answer. Raises _NoGuard, or Failure when it listens and does not answer."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) as channel:
        channel.settimeout(_TIMEOUT_S)
        try:
            channel.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise _NoGuard(f"no power guard at {path}; is fleetd-powerguard running?") from error
        except OSError as error:
            raise Failure(f"power guard at {path}: {error.strerror}; run as root", exit_code=CANNOT_JUDGE) from None
        try:
            channel.send(json.dumps(request).encode())
            found = json.loads(channel.recv(_BYTES_MAX))
        except (OSError, ValueError, RecursionError):
            why = f"the power guard at {path} does not answer; look at its log"
            raise Failure(why, exit_code=CANNOT_JUDGE) from None
    _understood(found, _Answer, f"the power guard at {path}")
    answer: dict[str, Any] = found
    return answer


def _ask_held(path: Path) -> dict[str, Any]:
    """The guard's status. Raises _NoGuard, or Failure when it gives none."""
    found = _ask_guard(path, {"do": "status"})
    if not found["ok"]:
        raise Failure(f"power guard at {path}: {found.get('why') or 'it gives no reason'}", exit_code=CANNOT_JUDGE)
    _understood(found, _Held, f"the power guard at {path}")
    return found


def _ask_governor(path: Path) -> dict[str, Any] | None:
    """The governor's part of the agent's status; None: it looks at no power. Raises NoAnswer, or Failure."""
    found = ask(path, timeout_s=_TIMEOUT_S).get("power")
    _understood(found, _Governor | None, f"the agent at {path}")
    document: dict[str, Any] | None = found
    return document


@click.command(name="status")
@click.option("--json", "json_path", metavar="PATH", help="Write the status as JSON; `-` is standard output.")
@guard_option
@socket_option
def status_command(json_path: str | None, guard: Path, socket: Path) -> None:
    """Show what holds the power of this host: the governor's mode of each GPU and why, and the guard's lease.

    Exit code 0: as it should be. 1: a GPU is not as the governor wants it. 3: neither agent nor guard answers.
    """
    governor, held, missing = None, None, []
    try:
        governor = _ask_governor(socket)
    except (NoAnswer, Failure) as error:
        missing.append(str(error))
    try:
        held = _ask_held(guard)
    except (_NoGuard, Failure) as error:
        missing.append(str(error))
    if governor is None and held is None and missing:
        raise Failure("; ".join(missing), exit_code=CANNOT_JUDGE)
    wrong = [gpu for gpu in (governor or {}).get("gpus", ()) if gpu["writer"]]
    code = BAD if wrong or (held or {}).get("errors") else 0
    body = {"schema": SCHEMA, "exit_code": code, "governor": governor, "guard": held, "missing": missing}
    if not write_json(json_path, body):
        _show(governor, held, missing)
    click.get_current_context().exit(code)


def _show(governor: dict[str, Any] | None, held: dict[str, Any] | None, missing: list[str]) -> None:
    for why in missing:
        click.echo(why)
    if governor is None:
        click.echo("governor: this agent looks at no envelope" if not missing else "governor: not known")
    else:
        click.echo(f"governor: at most {governor['allowed']}, envelope {governor['envelope']}", nl=False)
        click.echo(f", set-point: {governor['set_point']}")
        if only := governor.get("unenforceable"):
            click.echo(f"governor: this envelope can only be observed: {only}")
        _show_budget(governor.get("budget"))
        for gpu in governor["gpus"]:
            limits = ", ".join(f"{knob} {watts:g} W" for knob, watts in gpu["set_watts"].items()) or "no limit known"
            enforced = "" if gpu["enforced_watts"] is None else f", enforced {gpu['enforced_watts']:g} W"
            clock = gpu.get("clock_limit_hertz")
            locked = "" if clock is None else f", clock at most {clock / 1e6:.0f} MHz"
            click.echo(f"{gpu['gpu']}  {gpu['mode']}  {limits}{enforced}{locked}: {gpu['why']}")
            _show_lately(gpu.get("seen"), governor.get("tbp_watts", 0.0))
    if held is not None:
        live = f"lease live for {held['left_seconds'] or 0.0:g} s" if held["live"] else f"no lease: {held['fallen']}"
        click.echo(f"guard: process {held['pid']}, {live}; {held['renewed_total']} renewals", nl=False)
        click.echo("; its program was replaced: reload it" if held["program_replaced"] else "", nl=False)
        click.echo(f"; {held['lacking']}" if held["lacking"] else "")
        for gpu, why in held["errors"].items():
            click.echo(f"{gpu}  guard: {why}")


def _show_lately(seen: dict[str, Any] | None, tbp_watts: float) -> None:
    """What a GPU's power did in the last minute; None: nothing was seen of it."""
    if seen is None or not tbp_watts > 0:
        return
    windows = ", ".join(f"{label} {watts / tbp_watts:.2f}" for label, watts in seen["windows_watts"].items())
    click.echo(f"  last minute, of {tbp_watts:g} W: {windows or 'no window seen'}; swing {seen['swing_watts']:.0f} W")


def _show_budget(budget: dict[str, Any] | None) -> None:
    """The host's part of the fleet's power budgets; None: it takes part in none, or its agent does not know them."""
    if budget is None:
        return
    held = f"lease of {budget['watts']:g} W for {budget['left_s']:.0f} s" if budget["left_s"] > 0 else "no lease"
    asked = f"asked for {budget['demand_watts']:g} W, {budget['safe_watts']:g} W without a lease"
    click.echo(f"power budget: {held}; {asked}{'; ' if budget['why'] else ''}{budget['why']}")


@click.command(name="restore")
@click.option("--to", type=click.Choice(["safe", "prior"]), default="safe", show_default=True,
              help="Which limit: the envelope's safe cap, or the one from before fleetd.")  # fmt: skip
@click.option(
    "--state", type=click.Path(path_type=Path), default=STATE, show_default=True, help="The guard's state file."
)
@guard_option
def restore_command(to: str, state: Path, guard: Path) -> None:
    """Put every GPU to its safe cap, or back to the limit that was in force before fleetd.

    `prior` may raise limits: it is for taking fleetd off a host. Through the guard if it runs, else from its state
    file. A governor that runs takes its GPUs up again: set its mode to `observe` first.

    Exit code 0: every GPU. 1: one or more failed, which are named; the others are done. 3: it cannot be tried.
    """
    try:
        answer = _ask_guard(guard, {"do": "restore", "to": to})
        failed, why = answer.get("errors", {}), answer.get("why") or "the power guard gives no reason"
        if not answer["ok"] and not failed:
            raise Failure(f"restore: {why}", exit_code=CANNOT_JUDGE)
        if not failed and answer.get("why"):
            click.echo(f"nothing to restore: {why}")
            return
    except _NoGuard:
        failed = _restore_alone(state, to)
    for gpu, error in failed.items():
        click.echo(f"{gpu}: {error}", err=True)
    if failed:
        raise Failure(f"restore: {len(failed)} GPUs are not restored; the others are", exit_code=BAD)
    click.echo(f"restored: every GPU is at its {to} limit")


def _restore_alone(state: Path, to: str) -> dict[str, str]:
    # Imported here: it starts threads and loads the vendors' libraries.
    from fleetd.powerguard.restore import restore  # noqa: PLC0415

    if not os.access(state, os.R_OK):
        raise Failure(
            f"restore: no power guard runs, and {state} cannot be read; nothing was ever set, or run as root",
            exit_code=CANNOT_JUDGE,
        )
    try:
        return restore(state, to)
    except OSError as error:
        raise Failure(f"restore: {state}: {error.strerror or error}", exit_code=CANNOT_JUDGE) from None
