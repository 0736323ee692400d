"""The example of a configuration: read back it is the defaults; every key stands in it; what was cut off is told."""

import dataclasses
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from fleetd.actuators.config import KubernetesConfig, SlurmConfig, WebhookConfig
from fleetd.config import ConfigError, load
from fleetd.config.example import KINDS, example
from fleetd.config.files import AgentConfig, ControllerConfig, load_agent, load_controller
from fleetd.uplink.config import ServerConfig, UplinkConfig

LOADERS = {"Agent": load_agent, "Controller": load_controller}
CUT_EVERY_BYTES = 97


def structs(cls: Any, found: dict[str, Any] | None = None) -> dict[str, Any]:
    """A dataclass and all that its fields may hold, by name."""
    found = {} if found is None else found
    if dataclasses.is_dataclass(cls) and cls.__name__ not in found:
        found[cls.__name__] = cls
        for hint in get_type_hints(cls).values():
            for one in (hint, *get_args(hint)):
                if get_origin(one) is None:
                    structs(one, found)
    return found


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "example.yaml"
    path.write_text(text)
    return path


def test_what_is_read_back_is_the_defaults(tmp_path: Path) -> None:
    tls = {"ca": "/etc/fleetd/ca.crt"}
    agent = AgentConfig(
        state_dir=Path("/var/lib/fleetd"),
        uplink=UplinkConfig(
            address="controller.example:7443", cert="/etc/fleetd/agent.crt", key="/etc/fleetd/agent.key", **tls
        ),
    )
    controller = ControllerConfig(
        state_dir=Path("/var/lib/fleetd-controller"),
        server=ServerConfig(
            listen="0.0.0.0:7443", cert="/etc/fleetd/controller.crt", key="/etc/fleetd/controller.key", **tls
        ),
    )
    assert load_agent(written(tmp_path, example("Agent"))) == agent
    assert load_controller(written(tmp_path, example("Controller"))) == controller


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_every_dataclass_stands_in_it(kind: str) -> None:
    text = example(kind)
    all_structs = structs(KINDS[kind])
    assert len(all_structs) > 5, "sections were not found"
    for name, cls in all_structs.items():
        for field in dataclasses.fields(cls):
            if field.init:
                assert re.search(rf"^[ #]*{field.name}:( |$)", text, re.MULTILINE), f"{name}.{field.name}"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_out_of_what_the_fields_say(kind: str) -> None:
    text = " ".join(re.sub(r"^[ #]*# ?", "", line) for line in example(kind).splitlines())
    assert "Where the spool, accepted orders and burn-in reports live" in text or kind != "Agent"
    assert "the wait doubles from the first to the maximum" in text or kind != "Controller"
    assert "None" not in text, "a file says null"
    assert all(len(line) <= 120 for line in example(kind).splitlines())


def alternatives(text: str) -> list[str]:
    """The example again, with each of the commented alternatives in the place of the value that it is instead of."""
    lines = text.splitlines()
    found = []
    for start, line in enumerate(lines):
        key = re.fullmatch(r"# (\w+):", line)
        if key is None:
            continue
        end = start + 1
        while end < len(lines) and lines[end].startswith("#   "):
            end += 1
        block = [one.removeprefix("# ") for one in lines[start:end]]
        kept = [one for one in (*lines[:start], *lines[end:]) if not one.startswith(f"{key[1]}: ")]
        found.append("\n".join([*kept, *block]) + "\n")
    return found


def test_every_alternative_can_be_taken(tmp_path: Path) -> None:
    read = [load_controller(written(tmp_path, text)) for text in alternatives(example("Controller"))]
    actuators = {type(config.actuator): config.actuator for config in read}
    assert actuators[SlurmConfig] == SlurmConfig(kind="slurm")
    assert actuators[KubernetesConfig] == KubernetesConfig(kind="kubernetes")
    told = WebhookConfig(url="https://site.example/hook", secret=Path("/etc/fleetd/secret"))
    assert actuators[WebhookConfig] == told
    assert told in [config.pages for config in read]


@pytest.mark.parametrize("kind", KINDS)
def test_a_half_written_file_is_one_line_with_file_and_line(kind: str, tmp_path: Path) -> None:
    """A file that ends in the middle is refused, or what is left of it is whole: only defaults were lost."""
    content = example(kind).encode()
    whole = LOADERS[kind](written(tmp_path, content.decode()))
    path = tmp_path / "cut.yaml"
    refused = []
    for end in range(0, len(content), CUT_EVERY_BYTES):
        path.write_bytes(content[:end])
        try:
            read = LOADERS[kind](path)
        except ConfigError as error:
            refused.append(str(error))
        else:
            assert read.state_dir == whole.state_dir
    assert len(refused) > 5
    assert [line for line in refused if not re.fullmatch(rf"{re.escape(str(path))}:\d+: [^\n]+", line)] == []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Odd:
    """Values that YAML would take for something else."""

    word: str = "off"
    clock: str = "1:30"
    empty: str = ""
    small: float = 1e-7
    """Tiny; see `big_count`: {x}."""
    many: tuple[str, ...] = ("a b", "null", "#1")
    quoted: str = 'it\'s "here" \\ and ü'


def test_values_that_yaml_would_take_otherwise_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetd.config.example.KINDS", {"Odd": _Odd})
    assert load(written(tmp_path, example("Odd")), _Odd, kind="Odd") == _Odd()
    assert "# Tiny; see `big_count`: {x}.\nsmall: " in example("Odd")


def test_a_default_that_a_section_was_given_by_its_owner_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetd.config.example.KINDS", {"Owner": _Owner})
    text = example("Owner")
    assert load(written(tmp_path, text), _Owner, kind="Owner") == _Owner()
    assert "word: other" in text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owner:
    """Owns a section, with another default than the section's class has."""

    odd: _Odd = dataclasses.field(default_factory=lambda: replace(_Odd(), word="other"))
