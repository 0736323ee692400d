"""What carries out fleet orders on a scheduler. `dryrun` is the default: it records and touches nothing.

What belongs here: one file a scheduler behind the `Actuator` port. It imports ports and model, never core.
Always true: the same order id carried out again has no further effect.
"""
