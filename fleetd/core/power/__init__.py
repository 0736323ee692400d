"""Power, decided: envelope → buckets, the check of a trace, and what a controller may ask of a part.

What belongs here: pure functions on plain floats in base units. The compiler and the checker share no code, so that one
cannot hide the other's mistake.
"""
