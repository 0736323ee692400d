"""The controller's ledger: an append-only journal and what follows from it, behind the `Store` port.

What belongs here: SQL and the JSON form of the model. It may import ports and model, never core.
Always true: an entry is written whole or not at all, and nothing is acknowledged before it is on disk.
"""
