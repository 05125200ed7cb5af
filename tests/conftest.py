"""Settings for all tests: the same examples on every machine, and as many as a short run allows."""

import signal

from hypothesis import HealthCheck, settings

# Jobs in the background of a script ignore Ctrl-C, and so would the commands that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("everyday", max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("everyday")
