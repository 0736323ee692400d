"""Where a long run stands, on disk: written after every slice, whole or not at all; read when the run goes on.

One JSON object: schema, digest, body. What was damaged, or belongs to another run, is told and never used: the run then
starts anew. Torch-free.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from typing import Any

from burnin.options import Options
from burnin.processes import wire
from burnin.schedule import Done, Kind, Slice
from burnin.spec import Case, Device, Inject, Proof
from burnin.telling.write import write
from burnin.verdict.evidence import Cast, Death, DeathKind, Evidence, Examined, Injury, Shown
from burnin.verdict.health import Counters, Felt

SCHEMA = "fleetd.burnin.checkpoint/1"
BYTES_MAX = 256 << 20
"""More is no checkpoint: evidence is condensed (`burnin.verdict.condense`) and takes a few MB on eight GPUs."""


class CheckpointError(ValueError):
    """A file that is no checkpoint, or not a whole one; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a run needs to go on."""

    about: Mapping[str, Any]
    """What must be equal for it to be the same run; see `about`."""
    elapsed_s: float
    done: tuple[Done, ...]
    evidence: Evidence
    """Of everything but quotas and gaps, which the run that goes on finds out itself."""
    before: Mapping[str, Counters]
    """GPU → its health counters when the run began."""
    test_elapsed_s: Mapping[str, float]
    notes: tuple[str, ...]

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.about["seed"])


def about(options: Options, devices: tuple[Device, ...], versions: Mapping[str, str], backend: str) -> dict[str, Any]:
    """What identifies a run: on other GPUs, with other software or other wishes it is another one."""
    return {
        "level": options.level,
        "backend": backend,
        "seed": options.seed,
        "tests": list(options.tests),
        "seconds": options.seconds,
        "like": [asdict(one) for one in options.like],
        "inject": [asdict(one) for one in options.inject],
        "gpus": [[device.gpu, device.index, device.vote_key] for device in devices],
        "versions": dict(sorted(versions.items())),
    }


def differs(checkpoint: Checkpoint, now: Mapping[str, Any]) -> str:
    """In what a checkpoint is about another run; empty when it is about this one."""
    same = json.loads(json.dumps(dict(now)))
    return ", ".join(key for key in same if checkpoint.about.get(key) != same[key])


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write it, whole or not at all. Raises OSError."""
    body = {
        "about": checkpoint.about,
        "elapsed_s": checkpoint.elapsed_s,
        "done": [asdict(one) for one in checkpoint.done],
        "evidence": _plain(checkpoint.evidence),
        "before": {gpu: asdict(counters) for gpu, counters in checkpoint.before.items()},
        "test_elapsed_s": dict(checkpoint.test_elapsed_s),
        "notes": list(checkpoint.notes),
    }
    text = _canonical(body)
    write(path, f'{{"schema":"{SCHEMA}","digest":"{_digest(text)}","body":{text}}}\n')


def load(path: Path) -> Checkpoint | None:
    """Read it; None when there is none yet.

    Raises:
        CheckpointError: The file cannot be read, is none, or was damaged.
    """
    try:
        regular = S_ISREG(path.stat().st_mode)
        text = b""
        if regular:  # a device may have no end, a pipe no beginning
            with path.open("rb") as file:
                text = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"it cannot be read: {error.strerror}") from error
    if not regular:
        raise CheckpointError("it is no regular file")
    if len(text) > BYTES_MAX:
        raise CheckpointError(f"it has more than {BYTES_MAX >> 20} MiB")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError("it is no JSON, or a part of it only") from error
    if not isinstance(whole, dict) or whole.get("schema") != SCHEMA:
        raise CheckpointError("it is no checkpoint of this version")
    if whole.get("digest") != _digest(_canonical(whole.get("body"))):
        raise CheckpointError("its content is not what was written")
    try:
        return _made(whole["body"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"it lacks what a checkpoint has: {error}") from error


def seed_of(path: Path) -> int | None:
    """The seed with which the run in a file began; None where it cannot be gone on with."""
    try:
        found = load(path)
    except CheckpointError:
        return None
    return found.seed if found is not None else None


def forget(path: Path) -> None:
    """Remove it: its run has reported. One that cannot be removed makes the next run like it report the same."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _canonical(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"), sort_keys=True)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _plain(evidence: Evidence) -> dict[str, Any]:
    """Evidence as plain values; quotas and gaps are left to the run that goes on."""
    return {
        "devices": [asdict(device) for device in evidence.devices],
        "cases": [asdict(case) for case in evidence.cases.values()],
        "casts": [
            [cast.gpu, cast.test, wire.plain(cast.ballot), cast.retest, asdict(cast.felt) if cast.felt else None]
            for cast in evidence.casts
        ],
        "proofs": [asdict(shown) for shown in evidence.proofs],
        "examined": [asdict(one) for one in evidence.examined],
        "deaths": [asdict(death) for death in evidence.deaths],
        "injuries": [asdict(injury) for injury in evidence.injuries],
        "injected": [asdict(one) for one in evidence.injected],
        "cores": list(evidence.cores),
        "tests": [test for test, _ in evidence.cases],
    }


def _made(body: Mapping[str, Any]) -> Checkpoint:
    """Raises KeyError, TypeError, ValueError."""
    found = body["evidence"]
    cases = [Case(**fields) for fields in found["cases"]]
    evidence = Evidence(
        devices=tuple(Device(**fields) for fields in found["devices"]),
        cases={(test, case.name): case for test, case in zip(found["tests"], cases, strict=True)},
        quotas={},
        casts=tuple(_cast(*fields) for fields in found["casts"]),
        proofs=tuple(Shown(**{**fields, "proof": Proof(**fields["proof"])}) for fields in found["proofs"]),
        examined=tuple(
            Examined(**{**fields, "elements": wire.elements(fields["elements"])}) for fields in found["examined"]
        ),
        deaths=tuple(Death(**{**fields, "kind": DeathKind(fields["kind"])}) for fields in found["deaths"]),
        injuries=tuple(Injury(**fields) for fields in found["injuries"]),
        injected=tuple(Inject(**fields) for fields in found["injected"]),
        cores=tuple(map(int, found["cores"])),
    )
    return Checkpoint(
        about=dict(body["about"]) | {"seed": int(body["about"]["seed"])},
        elapsed_s=float(body["elapsed_s"]),
        done=tuple(_done(fields) for fields in body["done"]),
        evidence=evidence,
        before={gpu: Counters(**fields) for gpu, fields in body["before"].items()},
        test_elapsed_s={test: float(seconds) for test, seconds in body["test_elapsed_s"].items()},
        notes=tuple(map(str, body["notes"])),
    )


def _cast(gpu: str, test: str, ballot: Mapping[str, Any], retest: bool, felt: Mapping[str, Any] | None) -> Cast:
    feelings: Felt | None = wire.felt(felt) if felt is not None else None
    return Cast(gpu=gpu, test=test, ballot=wire.ballot(ballot), retest=retest, felt=feelings)


def _done(fields: Mapping[str, Any]) -> Done:
    slice_ = Slice(**{**fields["slice"], "kind": Kind(fields["slice"]["kind"])})
    return replace(Done(**{**fields, "slice": slice_}), rounds=int(fields["rounds"]))
