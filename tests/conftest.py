"""For all tests: what is found by searching is found or not, however busy the machine is."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
