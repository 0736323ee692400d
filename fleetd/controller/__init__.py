"""The controller: takes findings in, judges them by the core, keeps the ledger, has orders done, answers operators.

What belongs here: loops over ports. It imports core (to decide), ports and model; never an adapter.
Always true: an event and everything that follows from it are on disk before anybody is told of them.
"""
