"""`fleetd faults`: say what a log or a tool's output says broke, and what a code means. Needs no GPU and no daemon."""

import sys
from contextlib import nullcontext
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import click

from fleetd.cli.failure import BAD, CANNOT_JUDGE, USAGE, Failure
from fleetd.cli.jsonout import write_json
from fleetd.config import ConfigError
from fleetd.config.faults import load_catalogue
from fleetd.core.faults.catalogue import Catalogue, Entry
from fleetd.core.faults.documents import read as documents
from fleetd.core.faults.observation import Finding, ScanResult, rank
from fleetd.core.faults.prefix import is_journal
from fleetd.core.faults.scan import BLOCK_BYTES, LogScan
from fleetd.core.policy import Action

SCHEMA = "fleetd.faults.scan/1"
LOG_FORMATS = ("kmsg", "dmesg", "journal", "syslog")
PROBE_BYTES = 1 << 19
"""Of an input that are searched for the marks of a document; without any it is streamed as a log."""

SHOWN_LINES = 3
SHOWN_UNRECOGNISED = 10
"""On a terminal; the JSON has all that are kept."""

_CATALOGUE = click.option(
    "--catalogue",
    "site",
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR",
    help="A site's own catalogue files, which win over the shipped ones.",
)


class _Verbs(click.Group):
    """A group whose `follow`, which needs the agent's machinery, is imported only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in alphabetical order."""
        return sorted([*super().list_commands(ctx), "follow"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one verb; None when there is no such verb."""
        if cmd_name == "follow":
            follow = import_module("fleetd.cli.faults_follow").follow
            assert isinstance(follow, click.Command)  # noqa: S101 - the module is ours
            return follow
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Verbs)
def command() -> None:
    """Say what a log or a tool's output says broke, which GPU, and what to do; explain a code."""


@command.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--format",
    "wanted",
    type=click.Choice(["auto", *LOG_FORMATS, *documents.FORMATS]),
    default="auto",
    show_default=True,
    help="What the input is.",
)
@_CATALOGUE
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
@click.pass_context
def scan(ctx: click.Context, file: Path, wanted: str, site: Path | None, json_path: str | None) -> None:
    """Find faults in FILE (`-`: standard input): a kernel log, or what a vendor's tool or an exporter printed.

    Exit codes: 0 nothing to do, 1 something to do, 2 usage, 3 the input cannot be judged.
    """
    catalogue = _catalogue(site)
    try:
        with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as stream:
            result = scan_stream(stream, catalogue, wanted)
    except FileNotFoundError:
        raise Failure(f"{file}: there is no such file", exit_code=USAGE) from None
    except IsADirectoryError:
        raise Failure(f"{file}: is a directory; name one file, or pipe several into `-`", exit_code=USAGE) from None
    except OSError as error:
        raise Failure(f"{file}: cannot be read: {error.strerror}", exit_code=CANNOT_JUDGE) from None
    exit_code = _exit_code(result)
    write_json(json_path, _body(result, str(file), exit_code))
    if json_path != "-":
        _print(result)
    ctx.exit(exit_code)


@command.command()
@click.argument("code", nargs=-1, required=True)
@_CATALOGUE
@click.option("--json", "json_path", metavar="PATH", help="Write the entry as JSON; `-` is standard output.")
def explain(code: tuple[str, ...], site: Path | None, json_path: str | None) -> None:
    """Print the catalogue's entry of CODE: `nvidia.xid.79`, `79`, `xid 79`, `sxid 20034`, `VRAM_LOST`, `RLW_REMAP`."""
    text = " ".join(code)
    entry = _catalogue(site).find(text)
    if entry is None:
        raise Failure(f"`{text}` is not in the catalogue; a code looks like `nvidia.xid.79`, `xid 79` or `XID79`")
    write_json(json_path, {"schema": "fleetd.faults.entry/1", **_entry_fields(entry)})
    if json_path != "-":
        for name, value in _entry_fields(entry).items():
            if value not in (None, (), [], ""):
                click.echo(f"{name + ':':<16}{', '.join(value) if isinstance(value, list) else value}")


def scan_stream(stream: BinaryIO, catalogue: Catalogue, wanted: str) -> ScanResult:
    """Scan an input of any size: a document as a whole, a log in blocks.

    Args:
        stream: The input.
        catalogue: What to look for.
        wanted: A format, or `auto`.
    """
    probe = b"" if wanted in LOG_FORMATS else stream.read(PROBE_BYTES)
    named = wanted if wanted in documents.FORMATS else None
    text = "" if is_journal(probe) else probe.decode("utf-8", "replace")
    if named or (text and documents.is_document(text)):
        # One byte more than a document may have tells a log with a tool's output in it from a document.
        probe += stream.read(documents.DOCUMENT_BYTES_MAX + 1 - len(probe))
        if len(probe) <= documents.DOCUMENT_BYTES_MAX:
            document = documents.read(probe.decode("utf-8-sig", "replace"), named)
            if document is not None:
                together = LogScan(catalogue, format=document.format)
                together.include(document.observations, document.unrecognised)
                together.feed(document.rest.encode())
                return together.finish(document=True, cannot_judge=document.cannot_judge, notes=document.notes)
    log = LogScan(catalogue, format=wanted if wanted in LOG_FORMATS else None)
    log.feed(probe)
    while block := stream.read(BLOCK_BYTES):
        log.feed(block)
    return log.finish()


# ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _catalogue(site: Path | None) -> Catalogue:
    try:
        return load_catalogue(site)
    except ConfigError as error:
        raise Failure(str(error)) from None


def _exit_code(result: ScanResult) -> int:
    if result.action is None:
        return CANNOT_JUDGE
    return BAD if rank(result.action) > rank(Action.RESTART_APP) else 0


def _finding_fields(finding: Finding) -> dict[str, object]:
    fields = asdict(finding)
    fields.update(scope=finding.scope.value, severity=finding.severity.name.lower(), action=finding.action.value)
    return fields


def _body(result: ScanResult, file: str, exit_code: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "file": file,
        "format": result.format,
        "exit_code": exit_code,
        "action": result.action.value if result.action is not None else None,
        "cannot_judge": result.cannot_judge,
        "findings": [_finding_fields(finding) for finding in result.findings],
        "unrecognised": [asdict(item) for item in result.unrecognised],
        "unrecognised_total": result.unrecognised_total,
        "notes": result.notes,
    }


def _entry_fields(entry: Entry) -> dict[str, object]:
    fields: dict[str, object] = {
        "code": entry.code,
        "alias": entry.alias,
        "meaning": entry.meaning,
        "scope": entry.scope.value,
        "severity": entry.severity.name.lower(),
        "action": entry.action.value,
        "contact_vendor": entry.contact_vendor,
        "fault_class": entry.fault_class.value,
        "investigation": entry.investigation,
        "clear": entry.clear,
        "repeat": None,
        "follows": [*entry.follows],
        "vendor": entry.vendor,
        "differs": entry.differs,
        "source": f"{entry.source} ({entry.version})",
    }
    if (rule := entry.repeat) is not None:
        jobs = " under different jobs" if rule.across_jobs else ""
        fields["repeat"] = (
            f"{rule.at_least} times in {rule.within_seconds / 86400:g} days on the same {rule.same}{jobs}: "
            f"{rule.then.value}"
        )
    return fields


def _print(result: ScanResult) -> None:
    for finding in result.findings:
        role = "" if finding.role == "root" else "  (follow-on)"
        times = f" x{finding.count}" if finding.count > 1 else ""
        lines = f"  line {', '.join(map(str, finding.lines[:SHOWN_LINES]))}" if finding.lines else ""
        where = finding.device or finding.scope.value
        severity = finding.severity.name.lower()
        click.echo(f"{finding.action.value:<12}{finding.alias}{times}  {where}  {severity}{role}{lines}")
        click.echo(f"{'':<12}{finding.why}")
    for item in result.unrecognised[:SHOWN_UNRECOGNISED]:
        click.echo(f"unrecognised  line {item.line}: {item.text}")
    for note in result.notes:
        click.echo(f"note: {note}", err=True)
    if result.cannot_judge is not None:
        click.echo(f"fleetd: cannot judge: {result.cannot_judge}", err=True)
    else:
        assert result.action is not None  # noqa: S101 - exactly one of the two is there
        click.echo(f"to do: {result.action.value}")
