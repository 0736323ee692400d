"""The published JSON Schemas of what burn-in writes, beside the code that writes it. Torch-free.

What belongs here: one file for each schema and number, and the way to its text. Always true: within a number keys are
only added; the tests hold every report, fresh and recorded, against its file, and the file against the code.
"""

from importlib.resources import files

REPORT = "report-1.schema.json"
"""JSON Schema (draft 2020-12) of `burnin.spec.SCHEMA`."""


def text() -> str:
    """The schema of the report as it is shipped."""
    return files(__package__).joinpath(REPORT).read_text(encoding="utf-8")
