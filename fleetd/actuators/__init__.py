"""What carries out fleet orders on a scheduler. `dryrun` is the default: it records and touches nothing.

What belongs here: schedulers and webhooks behind the `Actuator` and `JobEnds` ports. It imports ports and model, never
core. Always true: the same order id carried out again has no further effect, and what others closed stays closed.
"""
