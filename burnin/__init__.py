"""burnin: burn GPUs in, find silent data corruption by checksum, vote and golden, and name the bad GPU.

What belongs here: everything that touches torch and Triton. It runs alone (torch, numpy, click, rich, pyyaml).
Where to begin: `run` (the phases), `session` (votes, proofs, retests), `judge` (who is to blame), `tests` (the table).
Always true: nothing here imports `fleetd`; `burnin.spec` and `burnin.vote` import neither torch nor numpy.
"""
