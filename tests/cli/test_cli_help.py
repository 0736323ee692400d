"""Every `--help`: each command says in one line what it does, each option what it means, and all speak alike."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from burnin.cli import command as burnin
from burnin.guard.__main__ import command as guard
from fleetd.cli import main

LINE_MAX = 125


def _walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command, info_name=path)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from _walk(inner, f"{path} {name}")


EVERY = [*_walk(main, "fleetd"), *_walk(burnin, "fleetd burnin"), *_walk(guard, "fleetd guard")]
OPTIONS = [(path, o) for path, command in EVERY for o in command.params if isinstance(o, click.Option)]


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[path for path, _ in EVERY])
def test_a_command_says_in_one_line_what_it_does(path: str, command: click.Command) -> None:
    first = (command.help or "").strip().split("\n\n")[0]
    assert first[:1].isupper(), path
    assert "\n" not in first, f"{path}: the first paragraph is the line in the list of commands"
    assert first.endswith("."), path
    assert len(first) <= LINE_MAX, path
    assert "Exit code" not in first, f"{path}: exit codes have a paragraph of their own"


def test_every_option_says_what_it_means() -> None:
    assert not [f"{path} {option.opts[0]}" for path, option in OPTIONS if not option.help]


def test_options_of_one_name_mean_one_thing() -> None:
    for path, option in OPTIONS:
        if "--json" in option.opts:
            assert option.help is not None
            assert "standard output" in option.help or "JSON object a line" in option.help, path
            assert not option.is_flag, path
        if "--controller" in option.opts and path != "fleetd agent enrol":
            assert option.envvar == "FLEETD_CONTROLLER", path
        assert "--output" not in option.opts, f"{path}: --json PATH, --html PATH or --out PATH"
        assert "--verbose" not in option.opts, path


def test_what_is_shown_is_free_of_marks_for_the_formatter() -> None:
    for words in (["completion"], ["store"], ["power", "bench"]):
        shown = CliRunner().invoke(main, [*words, "--help"]).output
        assert "\\b" not in shown
        assert "\b" not in shown
    lines = CliRunner().invoke(main, ["completion", "--help"]).output.split("\n")
    assert sum(line.strip().startswith(("bash:", "zsh:", "fish:")) for line in lines) == 3  # each on its own line
