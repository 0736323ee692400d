"""Transfers between the GPUs of a host: collectives and copies, checked on every rank against what must arrive.

What belongs here: the ways that data travel (`fabric`: simulated in one process; `group`: NCCL, RCCL or gloo), the
workloads on them (`reduce`, `copies`), and the gang of processes that runs them (`gang`, in the parent, torch-free).
Always true: a result is checked on the rank that received it; who is to blame is for `burnin.verdict.links`.
"""
