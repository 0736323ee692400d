"""The strict reader: every mistake has a file with it, and the line that the message must name."""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.config import ConfigError, load, load_policy
from fleetd.config.strict import MAX_FILE_BYTES
from fleetd.model.finding import Severity

BROKEN = Path(__file__).parent / "broken"

TABLE = [
    ("empty.yaml", 1, "is empty"),
    ("comment_only.yaml", 1, "is empty"),
    ("not_a_mapping.yaml", 1, "expected a mapping"),
    ("no_header.yaml", 1, "`apiVersion: fleetd/v1` is missing"),
    ("other_version.yaml", 1, "apiVersion must be `fleetd/v1`, not `fleetd/v2`"),
    ("other_kind.yaml", 2, "kind must be `Policy`, not `Agent`"),
    ("duplicate_key.yaml", 5, "`qualify.level` stands a second time; first in line 4"),
    ("unknown_key.yaml", 3, "unknown key `qualfy`; did you mean `qualify`?"),
    ("unknown_nested_key.yaml", 13, "unknown key `rules[0].when.severity`; did you mean `severity_at_least`?"),
    ("missing_key.yaml", 1, "`budgets` is missing"),
    ("missing_nested_key.yaml", 4, "`qualify.attempts` is missing"),
    ("wrong_type.yaml", 5, "`qualify.timeout_seconds`: expected `float`, got `str`"),
    ("bool_for_number.yaml", 6, "`qualify.attempts`: expected `int`, got `bool`"),
    ("text_for_list.yaml", 12, "`rules`: expected a list, got `none`"),
    ("list_for_mapping.yaml", 4, "`qualify`: expected a mapping, got a list"),
    ("bad_action.yaml", 14, "`rules[0].then`: `quarantin` is none of none, monitor"),
    ("bad_class.yaml", 13, "`rules[0].when.fault_class[1]`: `chip` is none of chip-persistent"),
    ("bad_severity.yaml", 13, "`rules[0].when.severity_at_least`: `bad` is none of info, warning, error, fatal"),
    ("bad_proof_class.yaml", 8, "key of proofs: `ram` is none of"),
    ("bad_stage.yaml", 15, "`rules[0].stage`: `enforced` is none of observe, recommend, enforce"),
    ("ratio_above_one.yaml", 10, "budgets.quarantines: max_ratio is a ratio from 0 to 1, not 5"),
    ("not_finite.yaml", 5, "is ambiguous"),
    ("huge_number.yaml", 5, "not a finite number"),
    ("huge_without_point.yaml", 5, "`qualify.timeout_seconds`: `1e400` is not a finite number"),
    ("seconds_beyond_ten_years.yaml", 5, "`qualify.timeout_seconds` must be from 0 to 315360000 seconds (ten years)"),
    ("seconds_zero.yaml", 5, "qualify: timeout_seconds must be above 0, not 0"),
    ("seconds_negative.yaml", 11, "`tell_again_seconds` must be from 0 to 315360000 seconds (ten years), not -1"),
    ("seconds_in_a_line.yaml", 10, "`budgets.quarantines.window_seconds` must be from 0"),
    ("window_zero.yaml", 14, "budgets.quarantines: window_seconds must be above 0, not 0"),
    ("job_failures_one.yaml", 13, "jobs: failures_at_least must be 2 to 16, not 1"),
    ("sexagesimal.yaml", 5, "`1:30` is ambiguous"),
    ("null_value.yaml", 4, "`qualify.level`: expected `str`, got `null`"),
    ("number_key.yaml", 3, "a key must be text, got `7`"),
    ("anchor.yaml", 3, "anchors and aliases"),
    ("alias_bomb.yaml", 3, "anchors and aliases"),
    ("merge_key.yaml", 3, "a key must be text, got `<<`"),
    ("tag.yaml", 3, "python/object/apply:os.system are not supported"),
    ("two_documents.yaml", 3, "not valid YAML"),
    ("tabs.yaml", 4, "not valid YAML"),
    ("unclosed.yaml", 4, "not valid YAML"),
    ("control_character.yaml", 3, "not valid YAML"),
    ("deep.yaml", 3, "nested more than"),
    ("empty_when.yaml", 13, "rules[0].when: `when` needs at least one matcher"),
    ("bad_code_glob.yaml", 13, "may hold letters"),
]


@pytest.mark.parametrize(("name", "line", "words"), TABLE, ids=[name for name, _, _ in TABLE])
def test_broken_files(name: str, line: int, words: str) -> None:
    path = BROKEN / name
    with pytest.raises(ConfigError) as caught:
        load_policy(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_broken_file_is_in_the_table() -> None:
    assert {p.name for p in BROKEN.iterdir()} == {name for name, _, _ in TABLE}


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_policy(path)
    return str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "there is no such file" in refused(tmp_path / "none.yaml")
    assert "is not a regular file" in refused(tmp_path)
    secret = tmp_path / "secret.yaml"
    secret.write_text("a: 1")
    secret.chmod(0)
    if not os.access(secret, os.R_OK):
        assert "cannot be read: Permission denied" in refused(secret)


def test_a_file_that_is_too_large_or_no_text(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert "is larger than" in refused(path)
    path.write_bytes(b"apiVersion: fleetd/v1\nkind: \xff\n")
    assert refused(path).startswith(f"{path}:2: is not UTF-8")
    path.write_bytes(b"[" * 100_000)
    assert "nested more than" in refused(path)


# ── types ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sim:
    backend: Literal["sim"]
    gpus: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    backend: Literal["nvidia", "amd"]
    library: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    devices: Sim | Real
    ratio: float = 0.5
    name: str | None = None
    colours: tuple[Colour, ...] = ()
    labels: dict[str, int] | None = None
    level: Severity = Severity.INFO
    either: int | str = 0


def sample(tmp_path: Path, body: str) -> Sample:
    path = tmp_path / "agent.yaml"
    path.write_text(f"apiVersion: fleetd/v1\nkind: Agent\n{body}\n")
    return load(path, Sample, kind="Agent")


def test_all_kinds_of_values(tmp_path: Path) -> None:
    body = (
        "devices: {backend: amd, library: /opt/x.so}\nratio: 1\nname: ~\ncolours: [red]\nlabels: {a: 1}\nlevel: error"
    )
    assert sample(tmp_path, body) == Sample(
        devices=Real(backend="amd", library=Path("/opt/x.so")),
        ratio=1.0,
        name=None,
        colours=(Colour.RED,),
        labels={"a": 1},
        level=Severity.ERROR,
    )
    assert sample(tmp_path, "devices: {backend: sim}").devices == Sim(backend="sim")
    assert sample(tmp_path, "devices: {backend: sim}\neither: x").either == "x"


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        ("devices: {backend: intel}", 3, "must be one of those with `backend: sim`, `backend: nvidia`, `backend: amd`"),
        ("devices: {}", 3, "must be one of those"),
        ("devices: sim", 3, "expected a mapping, got `sim`"),
        ("devices:\n  backend: sim\n  library: /x", 5, "unknown key `devices.library`"),
        ("devices: {backend: sim}\nlabels:\n  a: 1\n  a: 2", 6, "stands a second time"),
        ("devices: {backend: sim}\nname: 5", 4, "expected `str`, got `int`"),
        ("devices: {backend: sim}\nname: 2026-01-01", 4, "ambiguous"),
        ("devices: {backend: nvidia, library: ''}", 3, "expected a file name"),
    ],
)
def test_mistakes_in_them(tmp_path: Path, body: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sample(tmp_path, body)
    assert caught.value.line == line, str(caught.value)
    assert words in str(caught.value)


def test_an_exponent_without_a_point_is_a_number_where_one_is_asked_for(tmp_path: Path) -> None:
    text = (BROKEN / "huge_without_point.yaml").read_text().replace("1e400", "1e3").replace("name: r", "name: 1e3")
    path = tmp_path / "p.yaml"
    path.write_text(text)
    policy = load_policy(path)
    assert (policy.qualify.timeout_seconds, policy.rules[0].name) == (1000.0, "1e3")


@given(text=st.text(alphabet=":-[]{}&*!|>'\"%@#,? \n\tabc01.~<", max_size=60))
def test_any_text_gives_a_policy_or_one_line(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(f"apiVersion: fleetd/v1\nkind: Policy\n{text}\n", encoding="utf-8")
    try:
        said = str(load_policy(path).qualify)
    except ConfigError as error:
        said = str(error)
    assert "\n" not in said


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    source: Literal["off", "kmsg"]
    slurm: str
    loud: bool


def test_off_is_a_word_where_a_word_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "switches.yaml"
    path.write_text("apiVersion: fleetd/v1\nkind: Switches\nsource: off\nslurm: off\nloud: off\n")
    assert load(path, Switches, kind="Switches") == Switches(source="off", slurm="off", loud=False)
