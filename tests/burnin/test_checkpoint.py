"""What is noted is what is read: all evidence, byte by byte damage found, and another run told apart."""

import json
import os
import random
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from burnin.checkpoint import SCHEMA, Checkpoint, CheckpointError, about, differs, forget, load, save, seed_of
from burnin.like import Aim
from burnin.options import Options
from burnin.schedule import Done, Kind, Slice
from burnin.spec import Elements, Inject
from burnin.verdict.evidence import Death, DeathKind, Examined, Injury
from burnin.verdict.health import Counters, Felt, Spread
from tests.burnin.judge_evidence import BAD, EXACT, FLOAT, devices, evidence, proof, retested, votes

OPTIONS = Options(backend="sim", level="burnin", seed=7, host="h", like=(
    Aim(test="int", cases=("c",), seeds=(1, 2), gpus=("gpu0",), celsius=70.0, watts=None),
))  # fmt: skip
FELT = Felt(temperature_celsius=Spread(min=30.0, mean=50.5, max=71.0), limits=("software power cap",), readings=3)


def checkpoint() -> Checkpoint:
    more: dict[str, Any] = {"tiles": (1, 2**63), "trace": (("op", "aa"),), "facts": (("x", 0.5),)}
    mixed = votes(3, {1: ((BAD, 1), ("600d600d600d600d", 3))}, test=FLOAT, seed=2**63 - 1)
    odd = tuple(replace(cast, felt=FELT, ballot=replace(cast.ballot, **more)) for cast in mixed)
    elements = Elements(count=2, compared=9, bits=((3, 1),), period=None, first=(4, 5))
    told = replace(
        evidence(3, casts=votes(3, {}) + odd + retested(3, {1: BAD}), proofs=(proof(0, None), proof(1, BAD))),
        examined=(Examined(gpu="gpu1", test=EXACT, case="c", seed=1, elements=elements),),
        deaths=(Death(gpu="gpu2", test="int", kind=DeathKind.HANG, why="silent"),),
        injuries=(Injury(gpu="gpu0", why="ecc"),),
        injected=(Inject(gpu=1, fault="F03", rate=0.5, seed=9),),
        cores=(0, 3),
    )
    done = Done(slice=Slice(number=4, kind=Kind.LIKE, test="int", seconds=2.5), elapsed_s=2.75, rounds=3)
    return Checkpoint(
        about=about(OPTIONS, devices(3), {"torch": "2"}, "sim"),
        elapsed_s=1234.5,
        done=(done,),
        evidence=told,
        before={"gpu0": Counters(source="NVML", uncorrectable_total=2, remap_failed=False)},
        test_elapsed_s={"int": 3.5},
        notes=("one", "zwei, für drei"),
    )


def test_everything_comes_back(tmp_path: Path) -> None:
    path, noted = tmp_path / "state", checkpoint()
    save(path, noted)
    found = load(path)
    assert found is not None
    assert differs(found, noted.about) == ""
    assert replace(found, about=noted.about) == noted
    assert (found.seed, seed_of(path)) == (7, 7)
    assert [one.name for one in tmp_path.iterdir()] == ["state"]
    forget(path)
    assert load(path) is None
    assert seed_of(path) is None


@pytest.mark.parametrize("seed", range(20))
def test_any_changed_byte_is_found(seed: int, tmp_path: Path) -> None:
    path, rng = tmp_path / "state", random.Random(seed)  # noqa: S311 - a place to damage
    save(path, checkpoint())
    text = bytearray(path.read_bytes())
    at = rng.randrange(len(text) - 1)  # the last one ends the line
    text[at] ^= 1 << rng.randrange(7)
    path.write_bytes(text)
    try:
        found = load(path)
    except CheckpointError:
        return
    # White space that became other white space, or an escape that means the same: nothing was lost.
    assert found is not None
    assert replace(found, about={}) == replace(checkpoint(), about={})


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema": "other"}', '{"schema": "fleetd.burnin.checkpoint/1"}', "[" * 100_000]
)
def test_what_is_no_checkpoint_is_told_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"^(it|its) [^\n]*$"):
        load(path)
    assert seed_of(path) is None


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (about(replace(OPTIONS, seed=8), devices(3), {"torch": "2"}, "sim"), "seed"),
        (about(replace(OPTIONS, like=()), devices(3), {"torch": "2"}, "sim"), "like"),
        (about(OPTIONS, devices(2), {"torch": "2"}, "sim"), "gpus"),
        (about(OPTIONS, devices(3, "kkj"), {"torch": "2"}, "sim"), "gpus"),
        (about(OPTIONS, devices(3), {"torch": "3"}, "cuda"), "backend, versions"),
        (about(replace(OPTIONS, resume=Path("x"), exposure=Path("y")), devices(3), {"torch": "2"}, "sim"), ""),
    ],
)
def test_another_run_is_told_by_what_differs(other: dict[str, object], what: str, tmp_path: Path) -> None:
    save(tmp_path / "state", checkpoint())
    found = load(tmp_path / "state")
    assert found is not None
    assert differs(found, other) == what


def test_what_has_no_end_or_no_beginning_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(CheckpointError, match="no regular file"):
            load(odd)
        assert seed_of(odd) is None
    save(tmp_path / "state", checkpoint())
    monkeypatch.setattr("burnin.checkpoint.BYTES_MAX", 10)
    with pytest.raises(CheckpointError, match="more than"):
        load(tmp_path / "state")


@pytest.mark.parametrize(("key", "value"), [("about", {"level": "soak"}), ("before", [1]), ("evidence", None)])
def test_what_another_program_wrote_whole_is_not_used_either(key: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "state"
    save(path, checkpoint())
    body = json.loads(path.read_text())["body"] | {key: value}
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    path.write_text(json.dumps({"schema": SCHEMA, "digest": digest, "body": body}))
    assert seed_of(path) is None
    with pytest.raises(CheckpointError, match="lacks"):
        load(path)
