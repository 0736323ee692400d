"""The wiring: the only package that names adapters. One file for the agent, one for the controller.

What belongs here: tables from a name in a configuration to what answers to it, and the order of start and stop.
Always true: the agent's file imports nothing that only a controller needs; an agent lives on 80 MiB.
"""
