"""Faults: what a log or a tool's output says broke, which GPU, who is only a victim, and what to do.

What belongs here: the catalogue's types, parsers of lines and documents into observations, and the folding of
observations into incidents. It imports `fleetd.core.policy` (actions) and `fleetd.model`, reads no file and no clock.
Always true: every finding has a why and the lines it stands on; what is not understood is listed, never dropped.
"""
