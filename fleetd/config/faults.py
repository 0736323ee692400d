"""Reading the fault catalogue: the files that ship with fleetd, then a site's own, which win."""

from pathlib import Path

from fleetd.config.shipped import FAULTS, shipped_dir
from fleetd.config.strict import ConfigError, load
from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.schema import CatalogueFile

KIND = "FaultCatalogue"

MAX_FILES = 64
"""In a site's directory: more are no overrides but a mistake in the path."""


def load_catalogue(site: Path | None = None) -> Catalogue:
    """Read the shipped catalogue and a site's.

    Args:
        site: A file, or a directory whose `*.yaml` are read in the order of their names. A fault, a template or an
            override in it wins over the shipped one.

    Raises:
        ConfigError: A file cannot be used.
    """
    directory = shipped_dir(FAULTS)
    paths = _files(directory)
    if site is not None:
        paths += [site] if site.is_file() else _files(site)
    files = [load(path, CatalogueFile, kind=KIND) for path in paths]
    try:
        return Catalogue(files)
    except ValueError as error:
        raise ConfigError(site or directory, None, str(error)) from None


def _files(directory: Path) -> list[Path]:
    paths = sorted(directory.glob("*.yaml"))
    if not paths:
        raise ConfigError(directory, None, "there is no catalogue file (*.yaml)")
    if len(paths) > MAX_FILES:
        raise ConfigError(directory, None, f"has more than {MAX_FILES} files; this is no catalogue")
    return paths
