"""`fleetd controller`: run the controller until it is stopped."""

from pathlib import Path

import click

from fleetd.cli.failure import BAD, Failure
from fleetd.compose.controller import run_controller
from fleetd.config import ConfigError
from fleetd.config.files import load_controller
from fleetd.ports import PortError


@click.command(name="controller")
@click.option(
    "--config", "path", required=True, type=click.Path(path_type=Path), help="YAML file of `kind: Controller`."
)
def command(path: Path) -> None:
    """Run the controller: collect findings, judge them by the policy, quarantine bad hosts.

    Exit code 0: stopped. 1: something around it did not let it start or go on (disk, address, certificates), so trying
    again may help. 2: usage or configuration.
    """
    try:
        run_controller(load_controller(path))
    except ConfigError as error:
        raise Failure(str(error)) from error
    except PortError as error:
        raise Failure(str(error), exit_code=BAD) from error
