"""What the documents say can be typed: commands parse, files are accepted, links lead somewhere, names are there."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest

from burnin.cli import command as burnin
from burnin.guard.__main__ import command as guard
from fleetd.cli import main
from fleetd.config.files import load_agent, load_controller

ROOT = Path(__file__).parents[2]
DOCS = (
    *("README.md", "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md", "burnin/README.md"),
    *("deploy/OPERATIONS.md", "deploy/RUNBOOK.md"),
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(fleetd [a-z][^`]*)`")
FORWARDED = {"burnin": burnin, "guard": guard}
"""Nouns that hand over to a program of their own."""
PROGRAMS = {"fleetd": (), "python -m burnin": ("burnin",), "python -m burnin.guard": ("guard",)}
FILE = re.compile(r"[\w./-]+\.(?:yaml|db|json|jsonl|csv|pt|txt|zst|gz)")


def _text(doc: str) -> str:
    return (ROOT / doc).read_text(encoding="utf-8")


def _descend(words: list[str]) -> tuple[click.Command, str, list[str]]:
    """The command that words name, its path, and the rest of them."""
    command: click.Command = main
    path = "fleetd"
    while words and isinstance(command, click.Group):
        inner = FORWARDED.get(words[0]) if path == "fleetd" else None
        inner = inner or command.get_command(click.Context(command), words[0])
        if inner is None:
            break
        command, path, words = inner, f"{path} {words[0]}", words[1:]
    return command, path, words


def _typed(block: str) -> Iterator[list[str]]:
    """The commands of fleetd's in a block for a shell: each as its words after `fleetd`."""
    for line in block.replace("\\\n", " ").split("\n"):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        step: list[str] = []
        for word in [*lexer, ";"]:
            if not set(word) <= set("|&;"):
                step.append(word)
                continue
            if found := _ours(step):
                yield found
            step = []


def _ours(step: list[str]) -> list[str] | None:
    for at, word in enumerate(step):
        if at and step[at - 1] in {"-u", "-o", "-g"}:
            continue  # the user or the group of that name
        program = word.removeprefix(".venv/bin/").removeprefix("/opt/fleetd/bin/")
        start, size = (program, 1) if program != "python" else (" ".join(step[at : at + 3]), 3)
        if start in PROGRAMS:
            rest = step[at + size :]
            end = next((n for n, one in enumerate(rest) if one in {"<", ">", ">>"}), len(rest))
            return [*PROGRAMS[start], *rest[: end - 1 if rest[end - 1 : end] == ["2"] else end]]
    return None


TYPED = [
    (doc, shlex.join(words))
    for doc in DOCS
    for kind, block in FENCED.findall(_text(doc))
    if kind == "sh"
    for words in _typed(block)
]
NAMED = [(doc, " ".join(snippet.split())) for doc in DOCS for snippet in INLINE.findall(FENCED.sub("", _text(doc)))]


def test_the_documents_have_commands() -> None:
    assert len(TYPED) > 50
    assert len(NAMED) > 100


@pytest.mark.parametrize(("doc", "line"), TYPED, ids=[f"{doc}: fleetd {line}" for doc, line in TYPED])
def test_a_command_in_a_block_parses(doc: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)
    for word in words:
        if FILE.fullmatch(word) and not word.startswith("/"):
            (tmp_path / word).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / word).touch()
    (tmp_path / "policies" / "tests").mkdir(parents=True, exist_ok=True)
    command, path, rest = _descend(words)
    assert path != "fleetd" or rest[:1] == ["--version"], f"{doc}: no such command: fleetd {line}"
    try:
        with suppress(click.exceptions.Exit):  # --help
            command.make_context(path, list(rest))
    except click.UsageError as error:
        pytest.fail(f"{doc}: fleetd {line}: {error.format_message()}")


@pytest.mark.parametrize(("doc", "snippet"), NAMED, ids=[f"{doc}: {said}" for doc, said in NAMED])
def test_a_command_in_a_sentence_is_there(doc: str, snippet: str) -> None:
    first, *more = snippet.split()[1:]
    for noun in first.split("|"):
        verbs = more[0].split("|") if more and "|" in more[0] else more[:1]
        for verb in verbs or [""]:
            words = [one for one in (noun, verb, *more[1:]) if one]
            command, path, rest = _descend(words)
            assert path != "fleetd", f"{doc}: no such command: {snippet}"
            if isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z]+", rest[0]):
                pytest.fail(f"{doc}: {path} has no command {rest[0]}: {snippet}")
            known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
            options = {re.split(r"[=|]", word)[0] for word in rest if word.startswith("--")} - {"--help", "--version"}
            assert options <= known, f"{doc}: {path} has no {options - known}: {snippet}"


@pytest.mark.parametrize("doc", DOCS)
def test_links_lead_somewhere(doc: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _text(doc)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / doc).parent / name if name else ROOT / doc
        assert path.exists(), f"{doc}: {target}"
        if anchor and path.suffix == ".md":
            heads = re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, target


@pytest.mark.parametrize("doc", DOCS)
def test_make_has_the_targets_that_are_named(doc: str) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    typed = "\n".join(block for kind, block in FENCED.findall(_text(doc)) if kind == "sh")
    named = {*re.findall(r"`make ([a-z0-9-]+)", _text(doc)), *re.findall(r"^make ([a-z0-9-]+)", typed, re.MULTILINE)}
    assert named <= targets


@pytest.mark.parametrize("doc", [*DOCS, "Makefile"])
def test_tests_and_benchmarks_that_are_named_are_there(doc: str) -> None:
    text = _text(doc)
    named = {*re.findall(r"\btests/[\w/]+\.(?:py|json|png)", text)}
    named |= {f"{module.replace('.', '/')}.py" for module in re.findall(r"-m (tests\.[\w.]+\w)", text)}
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize("doc", DOCS)
def test_whole_files_are_accepted(doc: str, tmp_path: Path) -> None:
    blocks = [block for kind, block in FENCED.findall(_text(doc)) if kind == "yaml"]
    blocks += re.findall(r"<<END\n(.*?)^END$", _text(doc), re.MULTILINE | re.DOTALL)
    for at, block in enumerate(blocks):
        path = tmp_path / f"{at}.yaml"
        path.write_text(block.replace("$PWD", "/run"), encoding="utf-8")
        if "kind: Agent" in block:
            load_agent(path)
        elif "kind: Controller" in block:
            load_controller(path)


def _rooms(top: str) -> str:
    text = _text("ARCHITECTURE.md")
    found = re.search(rf"^The rooms of `{top}/`(.*?)^(?:The rooms|Tests mirror)", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("top", ["fleetd", "burnin"])
def test_the_architecture_names_every_package_and_no_module_that_is_gone(top: str) -> None:
    modules = [p for p in (ROOT / top).rglob("*.py") if "pb" not in p.parts]
    there = {p.stem for p in modules} | {p.name for p in (ROOT / top).rglob("*") if p.is_dir()}
    named = {name.rstrip("/").split("/")[-1] for name in re.findall(r"`([a-z_/0-9]+\*?)`", _rooms(top))}
    data = {"policies", "faults", "envelopes", "plants", "protos"}
    assert not [name for name in named - data if not _any(there, name)]
    packages = {p.parent.name for p in modules if p.name == "__init__.py"} - {top, "migrations", "versions"}
    assert not [name for name in packages if name not in named]


def _any(there: set[str], name: str) -> bool:
    parts = name.split("*")
    return any((len(parts) == 1 and one == name) or (len(parts) > 1 and one.startswith(parts[0])) for one in there)


def test_the_layers_are_those_that_the_linter_holds() -> None:
    config = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r"^layers = \[\n(.*?)^\]", config, re.MULTILINE | re.DOTALL)
    assert found is not None
    held = [sorted(re.findall(r"[a-z]+", line)) for line in re.findall(r'"(.*)"', found[1])]
    shown = re.search(r"^## Layers$.*?^```\n(.*?)^```", _text("ARCHITECTURE.md"), re.MULTILINE | re.DOTALL)
    assert shown is not None
    rows = [sorted(re.findall(r"[a-z]+", re.split(r"\s{2,}", line)[0])) for line in shown[1].splitlines()]
    beside = {"powerguard", "trace"}  # drawn below all others; only reserved
    assert [[n for n in row if n not in beside] for row in held] == [r for r in rows if r != ["powerguard"]]


def test_decisions_are_numbered_one_by_one() -> None:
    text = _text("ARCHITECTURE.md").split("## Decisions")[1]
    numbers = [int(number) for number in re.findall(r"^(\d+)\. \*\*", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert all(int(said) <= len(numbers) for said in re.findall(r"\((\d+)\)", text))
