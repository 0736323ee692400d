"""`fleetd host`: the fleet as the controller sees it, and the operator's verbs."""

import click
import msgspec

from fleetd.cli import tables
from fleetd.cli.connection import ask, connected
from fleetd.cli.duration import Time
from fleetd.cli.jsonout import write_json
from fleetd.cli.utc import utc
from fleetd.model.host import Hold, Host
from fleetd.model.ids import GpuId, HostName
from fleetd.model.order import Drain
from fleetd.system import RealClock
from fleetd.uplink.desk import DeskConfig

_json_option = click.option(
    "--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output."
)


@click.group(name="host")
def command() -> None:
    """Look at hosts, ask why, take them away, repair and prove them, give them back."""


@command.command("list")
@connected
@_json_option
def list_hosts(desk: DeskConfig, json_path: str | None) -> None:
    """List all hosts: state, GPUs, holds, why."""
    hosts = ask(desk, lambda client: client.hosts())
    if write_json(json_path, {"schema": "fleetd.hosts/1", "hosts": [msgspec.to_builtins(host) for host in hosts]}):
        return
    listed = tables.table("host", "state", "since", "GPUs", "holds", "why")
    for host in hosts:
        listed.add_row(
            host.name, host.state, utc(host.since_s), str(len(host.inventory)), str(len(host.holds)), host.why
        )
    tables.show(listed if hosts else "no host has reported yet")


@command.command()
@click.argument("name")
@connected
@_json_option
def show(desk: DeskConfig, name: str, json_path: str | None) -> None:
    """Show one host: GPUs, holds with their evidence, latest samples, newest findings."""
    host, samples, findings = ask(desk, lambda client: client.host(HostName(name)))
    body = {
        "schema": "fleetd.host.show/1",
        "host": msgspec.to_builtins(host),
        "samples": [msgspec.to_builtins(sample) for sample in samples],
        "findings": [msgspec.to_builtins(finding) for finding in findings],
    }
    if write_json(json_path, body):
        return
    tables.show(f"{host.name}: {host.state} since {utc(host.since_s)}: {host.why}")
    for hold in host.holds:
        tables.show(f"  held by {hold.owner} since {utc(hold.at_s)}: {hold.reason}; leaves by {leaves_by(hold)}")
        tables.show(f"    evidence: {', '.join(hold.evidence) or 'none'}")
    for charge in host.charges:
        tables.show(f"  charged, not held: {charge.hold.reason}; kept back: {charge.withheld}")
    if host.due is not None:
        tables.show(f"  burn-in `{host.due.level}` waits until {utc(host.due.not_before_s)}: {host.due.why}")
    latest = {sample.gpu: sample for sample in samples}
    for gpu in host.inventory:
        sample = latest.get(gpu.gpu)
        reading = (
            f"{_number(sample.power_watts, 'W')}, {_number(sample.temperature_celsius, '°C')}"
            if sample
            else "no sample"
        )
        tables.show(f"  gpu {gpu.index} {gpu.gpu} ({gpu.sku}): {reading}")
    for finding in findings[:10]:
        tables.show(f"  {utc(finding.at_s)} finding {finding.id}: {finding.why}")


@command.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why; it is shown to everybody who looks at the host.")
@click.option("--expires-in", type=Time(), help="The hold ends by itself after 90m, 12h, 3d; by default it does not.")
@click.option(
    "--drain",
    type=click.Choice([drain.value for drain in Drain]),
    help="How its jobs leave, also of a host that is held already; by default as the policy has it. At `job_end`, "
    "after their next `checkpoint`, or `now`, to start again elsewhere.",
)
@connected
@_json_option
def quarantine(
    desk: DeskConfig, name: str, reason: str, *, expires_in: float | None, drain: str | None, json_path: str | None
) -> None:
    """Take a host away from its users."""
    expires_at_s = None if expires_in is None else RealClock().wall_s() + expires_in
    leaves = None if drain is None else Drain(drain)
    host = ask(desk, lambda client: client.quarantine(HostName(name), reason, expires_at_s=expires_at_s, drain=leaves))
    _changed(host, json_path)


@command.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why; it stays in the host's history.")
@click.option("--override", is_flag=True, help="Lift the holds although the proof that they ask for is missing.")
@connected
@_json_option
def release(desk: DeskConfig, name: str, reason: str, *, override: bool, json_path: str | None) -> None:
    """Give a host back to its users: needs the proof that its holds ask for, or --override."""
    _changed(ask(desk, lambda client: client.release(HostName(name), reason, override=override)), json_path)


@command.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why; it stays in the host's history.")
@click.option("--level", help="smoke, quick, qualify, burnin, …; by default what makes the host healthy or releasable.")
@connected
@_json_option
def burnin(desk: DeskConfig, name: str, reason: str, level: str | None, json_path: str | None) -> None:
    """Run a burn-in on a host now; after a repair this is how it proves itself without a reboot."""
    _changed(ask(desk, lambda client: client.burnin(HostName(name), reason, level=level)), json_path)


@command.command()
@click.argument("name")
@click.option("--reason", required=True, help="What is being repaired; it stays in the host's history.")
@connected
@_json_option
def repair(desk: DeskConfig, name: str, reason: str, json_path: str | None) -> None:
    """Leave a host to a person: nothing is run on it until `fleetd host burnin`."""
    _changed(ask(desk, lambda client: client.repair(HostName(name), reason)), json_path)


@command.command()
@click.argument("name")
@click.option("--reason", required=True, help="What was repaired; it stays in the host's history.")
@connected
@_json_option
def repaired(desk: DeskConfig, name: str, reason: str, json_path: str | None) -> None:
    """Say that a repair is over: the host runs the burn-in that proves it."""
    _changed(ask(desk, lambda client: client.repaired(HostName(name), reason)), json_path)


@command.command()
@click.argument("name")
@click.argument("old", metavar="GPU_OLD")
@click.argument("new", metavar="GPU_NEW")
@click.option("--reason", required=True, help="Why; it stays in the host's history.")
@connected
@_json_option
def swapped(*, desk: DeskConfig, name: str, old: str, new: str, reason: str, json_path: str | None) -> None:
    """Say that a GPU was exchanged (UUIDs or serials): it is counted, and the host has to prove itself."""
    _changed(ask(desk, lambda client: client.swap(HostName(name), reason, old=GpuId(old), new=GpuId(new))), json_path)


@command.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why; it stays in the host's history.")
@connected
@_json_option
def retire(desk: DeskConfig, name: str, reason: str, json_path: str | None) -> None:
    """Take a host out of the fleet for good; `release --override` takes it back, to be proven."""
    _changed(ask(desk, lambda client: client.retire(HostName(name), reason)), json_path)


@command.command()
@click.argument("name")
@connected
@_json_option
def explain(desk: DeskConfig, name: str, json_path: str | None) -> None:
    """Say step by step why a host is where it is: its newest steps; `fleetd audit --host NAME --everything` has all."""
    steps = ask(desk, lambda client: client.explain(HostName(name)))
    told = [{"at_s": at_s, "why": why} for at_s, why in steps]
    if write_json(json_path, {"schema": "fleetd.host.explain/1", "steps": told}):
        return
    for at_s, why in steps:
        tables.show(f"{utc(at_s)}  {why}")


def leaves_by(hold: Hold) -> str:
    """What takes a hold off its host."""
    said = f"a passing `{hold.proof_level}` burn-in" if hold.proof_level else "an operator's decision"
    said += " after a reboot" if hold.after_reboot else ""
    return said if hold.expires_at_s is None else f"{said}, or at {utc(hold.expires_at_s)}"


def _changed(host: Host, json_path: str | None) -> None:
    if not write_json(json_path, {"schema": "fleetd.host/1", **msgspec.to_builtins(host)}):
        tables.show(f"{host.name}: {host.state}: {host.why}")


def _number(value: float | None, unit: str) -> str:
    return "not read" if value is None else f"{value:.0f} {unit}"
