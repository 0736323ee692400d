"""The load of the duty-cycle benchmark: bursts of matrix products with a low phase between, measured from outside.

What belongs here: making the load and reading the sensors beside it. Judging (boost, intervals, envelopes) is the
caller's. Always true: nothing of the device is set, every setting is only read, before and after.
"""
