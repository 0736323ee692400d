"""For all tests: what is found by searching is found or not, however busy the machine is and whenever it is asked."""

from hypothesis import HealthCheck, settings

# The same examples in every run: what a test says depends on the code alone. To look for new ones:
# `pytest --hypothesis-profile=explore`.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("explore"), derandomize=True)
settings.load_profile("steady")
