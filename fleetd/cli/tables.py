"""Tables as commands show them: as wide as the terminal is, and whole where nobody can see its edge."""

from rich.console import Console
from rich.table import Table

_PIPE_COLUMNS = 10_000


def table(*titles: str) -> Table:
    """An empty table without lines around it."""
    return Table(*titles, box=None, pad_edge=False)


def show(*what: Table | str) -> None:
    """Print to standard output; a pipe has no edge, so there each row of a table is one line."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PIPE_COLUMNS
    for one in what:
        console.print(one)
