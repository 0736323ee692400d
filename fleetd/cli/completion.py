"""`fleetd completion`: what a shell needs to complete fleetd's words."""

import click
from click.shell_completion import get_completion_class

from fleetd.cli.failure import Failure

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FLEETD_COMPLETE"
"""By which the script asks the program itself for the words that could follow."""


@click.command(name="completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that completes fleetd's commands and options in a shell.

    \b
    bash: fleetd completion bash > /etc/bash_completion.d/fleetd   (or: eval "$(fleetd completion bash)")
    zsh:  fleetd completion zsh > "${fpath[1]}/_fleetd"
    fish: fleetd completion fish > ~/.config/fish/completions/fleetd.fish
    """  # noqa: D301 - click's mark for lines that stay as they are
    kind = get_completion_class(shell)
    if kind is None:
        raise Failure(f"completion: this version of click knows no {shell}; use another shell, or a newer click")
    click.echo(kind(ctx.find_root().command, {}, "fleetd", VARIABLE).source(), nl=False)
