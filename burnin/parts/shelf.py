"""Which parts there are: one YAML file each, beside this module. Torch-free."""

from importlib import resources

from burnin.parts.part import Part
from burnin.parts.reading import PartError, parse

SUFFIX = ".yaml"


def names() -> tuple[str, ...]:
    """Names of the parts, sorted."""
    files = (entry.name for entry in resources.files(__package__).iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX)))


def load(name: str) -> Part:
    """The part of that name, in any case of letters. Raises PartError: unknown, or its file is not right."""
    known = name.lower()
    if known not in names():
        raise PartError(f"part {name!r} is not known; there are {', '.join(names())}")
    try:
        text = (resources.files(__package__) / f"{known}{SUFFIX}").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PartError(f"{known}{SUFFIX}: cannot be read ({error})") from None
    return parse(text, f"{known}{SUFFIX}")


def every() -> tuple[Part, ...]:
    """All parts. Raises PartError."""
    return tuple(load(name) for name in names())
