"""Who is to blame: from checksums, goldens, deaths and counters to a verdict on each GPU. Pure.

What belongs here: what was seen (`evidence` `health` `deaths`), what the votes and bounds say of it (`weigh` `bounds`,
with `burnin.vote`), what a second opinion adds (`witness` `opinions`), transfers (`pairs` `links`), who is slow
(`rates`), the run's own planted faults (`planted`), how sure it is (`chance`), and the sum of it: `judge`. Always true:
no torch, clock or disk; the same evidence gives the same verdict.
"""
