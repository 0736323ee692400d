"""Small models under the training guard, and faults to try it on.

What belongs here: `python -m burnin.examples.gpt`, `… .dlrm`, the ranks that they start (`gang`), planted faults
(`faults`). Always true: a fault sits where hardware would have it, below the model and the guard, which know nothing
of it.
"""
