"""The ledger's schemas, one after the other: Alembic runs them when a controller starts, forward only.

What belongs here: how a file of one schema becomes one of the next. Each migration spells out its tables and its JSON:
it must do tomorrow what it does today, whatever the code around it has become.
"""
