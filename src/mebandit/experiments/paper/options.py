"""The settings of `mebandit paper`."""

from dataclasses import dataclass
from pathlib import Path

from mebandit import checks
from mebandit.simulation.simulate import MOST

PROTOCOLS = ("published", "as_written")
"""how an experiment is set up: so that it reproduces the paper's printed numbers, or as the paper's text describes it"""

QUICK = 3
"""replicates of a quick run"""


@dataclass(frozen=True, kw_only=True)
class PaperOptions:
    """What a user can choose for an experiment of the paper."""

    protocol: str = "both"
    """one of `PROTOCOLS`, or "both" """
    replicates: int | None = None
    """independent runs for each cell; None: what the experiment needs, or `QUICK` for a quick run"""
    quick: bool = False
    seed: int = 1
    heartsteps_csv: Path | None = None
    """the cleaned HeartSteps V1 data, whose rows are then played beside the built-in description of them"""

    policies: tuple[str, ...] = ()
    """policies of your own, `module:Name`, that play along in Table 1(a); the module lies in the working directory or is installed"""

    def __post_init__(self) -> None:
        checks.one_of("protocol", self.protocol, (*PROTOCOLS, "both"))
        if self.replicates is not None:
            checks.integer("replicates", self.replicates, 2, MOST)
        checks.integer("seed", self.seed, 0, 2**63 - 1)

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols to run."""
        return PROTOCOLS if self.protocol == "both" else (self.protocol,)

    def replicates_or(self, usual: int) -> int:
        """The number of replicates, `usual` unless the user chose another."""
        if self.replicates is not None:
            return self.replicates
        return QUICK if self.quick else usual

    @property
    def command(self) -> str:
        """The options as they are typed on the command line."""
        words = [f"--protocol {self.protocol}"]
        words += [f"--replicates {self.replicates}"] if self.replicates is not None else []
        words += ["--quick"] if self.quick else []
        words += [f"--policy {kind}" for kind in self.policies]
        words += [f"--heartsteps-csv {self.heartsteps_csv.name}"] if self.heartsteps_csv is not None else []
        return " ".join([*words, f"--seed {self.seed}"])
