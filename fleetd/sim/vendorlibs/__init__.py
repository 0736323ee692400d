"""Fake hosts: the vendors' libraries in C, driven by a scenario file, for the vendors' real Python bindings to load.

What belongs here: `nvml.c` and `amd_smi.c`, what builds them, the scenarios, and a whole host of them (`host`).
Imports the standard library only. Always true: an agent on a fake host runs nothing but what it runs on a real one.
"""
