"""Detection coverage: faults of every model planted on a simulated host, and who sees them: we, ablations, peers.

What belongs here: the simulated host (`host`), the trials (`plan`, `trials`, `benign`), the rules of others (`rules`),
the sums and targets (`score`, pure) and how they are shown (`show`). Always true: what is judged went through the real
workloads, session, votes, goldens and judge; only the eight devices are simulated.
"""
