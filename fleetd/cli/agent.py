"""`fleetd agent`: run the agent of this host until it is stopped."""

from pathlib import Path

import click

from fleetd.cli.failure import Failure
from fleetd.compose.agent import run_agent
from fleetd.config import ConfigError
from fleetd.config.files import load_agent
from fleetd.ports import PortError


@click.command(name="agent")
@click.option("--config", "path", required=True, type=click.Path(path_type=Path), help="YAML file of `kind: Agent`.")
def command(path: Path) -> None:
    """Run the agent of this host: metrics, findings, burn-ins that the controller orders."""
    try:
        run_agent(load_agent(path))
    except (ConfigError, PortError) as error:
        raise Failure(str(error)) from error
