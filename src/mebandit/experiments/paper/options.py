"""What a person can ask of a paper experiment."""

from dataclasses import dataclass
from pathlib import Path

from mebandit import checks
from mebandit.simulation.simulate import MOST

PROTOCOLS = ("published", "as_written")
QUICK = 3
"""replicates of a quick run"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """`published` is what the paper's numbers turn out to be, `as_written` what its text says; "both" is both."""

    protocol: str = "both"
    replicates: int | None = None
    """None: what each experiment needs, or 3 for a quick run"""
    quick: bool = False
    seed: int = 1
    heartsteps_csv: Path | None = None

    def __post_init__(self) -> None:
        checks.one_of("protocol", self.protocol, (*PROTOCOLS, "both"))
        if self.replicates is not None:
            checks.integer("replicates", self.replicates, 2, MOST)
        checks.integer("seed", self.seed, 0, 2**63 - 1)

    @property
    def protocols(self) -> tuple[str, ...]:
        return PROTOCOLS if self.protocol == "both" else (self.protocol,)

    def replicates_or(self, usual: int) -> int:
        if self.replicates is not None:
            return self.replicates
        return QUICK if self.quick else usual

    @property
    def command(self) -> str:
        """The options as they are typed."""
        words = [f"--protocol {self.protocol}"]
        words += [f"--replicates {self.replicates}"] if self.replicates is not None else []
        words += ["--quick"] if self.quick else []
        words += [f"--heartsteps-csv {self.heartsteps_csv.name}"] if self.heartsteps_csv is not None else []
        return " ".join([*words, f"--seed {self.seed}"])
