"""What Prometheus asks for. Nothing here names an experiment or a participant."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

SECONDS = 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0


class Metrics:
    """The counters of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.decisions = Counter("mebandit_decisions", "Decisions answered", ["mode", "replayed"], registry=self.registry)
        self.outcomes = Counter("mebandit_outcomes", "Outcomes answered", ["status"], registry=self.registry)
        self.latency = Histogram(
            "mebandit_decision_seconds", "Time from request to stored decision", buckets=SECONDS, registry=self.registry
        )

    def text(self) -> bytes:
        """All of them in the format of Prometheus."""
        return generate_latest(self.registry)
