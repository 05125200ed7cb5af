"""Settings for all tests: the same examples on every machine, and as many as a short run allows."""

from hypothesis import HealthCheck, settings

settings.register_profile("everyday", max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("everyday")
