"""The experiments "table1a" and "table1b": average regret in the synthetic environment (a) and in HeartSteps V1 (b).

There are two protocols. `published` reproduces the printed numbers, `as_written` follows the text of the paper; see `SETTINGS`.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mebandit import checks, schedules
from mebandit.environments import Environment, Gaussian, HeartSteps
from mebandit.experiments.own_code import load
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.paper.published import POLICIES, RUNS, TABLE_1A, TABLE_1B
from mebandit.experiments.runner import CellData
from mebandit.experiments.spec import SimulationCell, simulated
from mebandit.policies import greedy, lin_ucb, meb, meb_dr, meb_naive, robust_ucb, thompson
from mebandit.reports.colours import colours_of
from mebandit.reports.figures import canvas, legend_above, picture, plain
from mebandit.reports.page import Section
from mebandit.reports.table import Table
from mebandit.simulation.simulate import named_policies

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

FLOOR = 0.2
ORACLE = "oracle on x̃"
OURS, LEAST_SQUARES = "MEB-DR", "LS + intercept"
LEARNERS = (*POLICIES, OURS)
REFERENCES = ("uniform", ORACLE, "oracle on E[x|x̃]")
RESTARTED = "RobustUCB, restarting"
"""RobustUCB as its own paper describes it; the printed column of that name is another policy"""

REPLICATES_1A, REPLICATES_1B = 100, 222
"""in (b) each of the 37 users comes six times, since users differ more than runs do"""

USERS = 37

TITLES = {"table1a": "Table 1(a): the synthetic environment", "table1b": "Table 1(b): HeartSteps V1"}
SETTINGS = {
    ("table1a", "published"): (
        "The largest clipped regret that any policy can have here is 1.176. Some printed numbers are larger, so they cannot be average "
        "clipped regret. They are 10 times the difference between a policy's average clipped regret and that of the oracle that knows θ "
        "and acts on x̃; a number below 0 is better than that oracle. T = 50,000, p0 = 0.2, ridge 1. The column σ_η² is used as a standard "
        "deviation, σ_ε² as a variance. MEB is uncorrected in its first 500 rounds and has no guard. UCB has width 1. TS uses the exact "
        "posterior probability. The RobustUCB column is UCB with width 1.1."
    ),
    ("table1a", "as_written"): (
        "Average clipped regret. σ_η² and σ_ε² are variances. UCB and TS have C = ρ = σ_η². MEB has the 2,237 rounds of warm-up of "
        "Corollary 2.1, and the other policies have none. RobustUCB has its restarts. The printed numbers are on another scale, so no "
        "difference is shown."
    ),
    ("table1b", "published"): (
        "Explore, then commit: for 2,500 rounds all probabilities are 1/2, and the policy learns. Then its estimate stays fixed, and for "
        "2,500 rounds the best action is taken, without a floor. The number is 10 times the average standard regret of the second part. "
        "σ_η² is used as a standard deviation. σ_ε² is the error variance of the burden, whose decay λ is 0.95. Each replicate is one of "
        "the 37 users. From the data: the rows of that user in their order, repeated. From the description: contexts drawn from the user's "
        "distribution that is built into the package. With probabilities 1/2, MEB and MEB-naive nearly agree. The RobustUCB column is "
        "taken to be UCB with width 1.1, as in (a)."
    ),
    ("table1b", "as_written"): (
        "Average clipped regret over 2,500 rounds with the floor 0.2. Contexts are drawn independently. σ_η² and σ_ε² are variances. The "
        "printed numbers are another quantity, so no difference is shown."
    ),
}


@dataclass(frozen=True)
class HeartStepsData:
    """Where the users of HeartSteps come from: the built-in description, or the data."""

    csv: Path | None = None
    """the cleaned data; None: the built-in description"""

    def world(self, *, noise_sd: float, burden_error_var: float, in_turn: bool) -> tuple[Environment, dict[str, Any]]:
        """The environment, and the settings that its results are stored under."""
        options: dict[str, Any] = {"noise_sd": noise_sd, "burden_error_var": burden_error_var}
        if self.csv is None:
            return HeartSteps(**options), {"kind": "HeartSteps"} | options
        digest = hashlib.sha256(self.csv.read_bytes()).hexdigest()
        environment = HeartSteps.from_csv(self.csv, in_turn=in_turn, **options)
        if len(environment.user_theta) != USERS:
            checks.refuse(
                "heartsteps_csv", f"be the cleaned HeartSteps V1 data, {USERS} users", f"{len(environment.user_theta)} in {self.csv}"
            )
        return environment, {"kind": "HeartSteps", "data": digest, "in_turn": in_turn} | options


def cells_1a(protocol: str, *, replicates: int, seed: int, horizon: int = 50_000) -> list[SimulationCell]:
    """The nine cells of Table 1(a)."""
    cells = []
    for sigma_eta, sigma_e2 in TABLE_1A:
        noise_sd = sigma_eta if protocol == "published" else sqrt(sigma_eta)
        cells.append(
            simulated(
                f"1(a) {protocol} σ_η={sigma_eta:g} σ_ε²={sigma_e2:g}",
                Gaussian(error_cov=sigma_e2, noise_sd=noise_sd),
                _policies_1a(protocol, sigma_eta, horizon),
                labels={"protocol": protocol, "sigma_eta": sigma_eta, "sigma_e2": sigma_e2},
                settings={"kind": "Gaussian", "error_cov": sigma_e2, "noise_sd": noise_sd},
                horizon=horizon,
                replicates=replicates,
                seed=seed,
                floor=FLOOR,
            )
        )
    return cells


def _policies_1a(protocol: str, sigma_eta: float, horizon: int) -> list[Any]:
    common: dict[str, Any] = {"floor": FLOOR}
    if protocol == "published":
        late = common | {"correct_from": 501, "guard": "never"}
        return [
            thompson(2, 5, **common),
            lin_ucb(2, 5, **common),
            meb(2, 5, **late),
            meb_naive(2, 5, **late),
            lin_ucb(2, 5, width=1.1, name="RobustUCB", **common),
            robust_ucb(2, 5, horizon=horizon, name=RESTARTED, **common),
            meb_dr(2, 5, name=OURS, **common),
        ]
    preset = schedules.clipped(FLOOR, horizon, 5)
    return [
        thompson(2, 5, width=sqrt(sigma_eta), **common),
        lin_ucb(2, 5, width=sigma_eta, **common),
        meb(2, 5, **preset),
        meb_naive(2, 5, **preset),
        robust_ucb(2, 5, horizon=horizon, width=sigma_eta, **common),
        meb_dr(2, 5, name=OURS, **common),
        greedy(2, 5, intercept=True, name=LEAST_SQUARES, **common),
    ]


def cells_1b(protocol: str, *, source: HeartStepsData, replicates: int, seed: int) -> list[SimulationCell]:
    """The nine cells of Table 1(b)."""
    published = protocol == "published"
    horizon = 5000 if published else 2500
    cells = []
    for sigma_eta, sigma_e2 in TABLE_1B:
        noise_sd = sigma_eta if published else sqrt(sigma_eta)
        environment, settings = source.world(noise_sd=noise_sd, burden_error_var=sigma_e2, in_turn=published)
        cells.append(
            simulated(
                f"1(b) {protocol} σ_η={sigma_eta:g} σ_ε²={sigma_e2:g}{'' if source.csv is None else ' data'}",
                environment,
                _policies_1b(protocol, noise_sd, sigma_eta, horizon),
                labels={
                    "protocol": protocol,
                    "source": "description" if source.csv is None else "data",
                    "sigma_eta": sigma_eta,
                    "sigma_e2": sigma_e2,
                },
                settings=settings,
                horizon=horizon,
                replicates=replicates,
                seed=seed,
                floor=0.0 if published else FLOOR,
                milestones=[2500],
            )
        )
    return cells


def _policies_1b(protocol: str, noise_sd: float, sigma_eta: float, horizon: int) -> list[Any]:
    if protocol == "published":
        commit: dict[str, Any] = {"floor": schedules.Steps((2500,), (0.5, 0.0)), "refit": schedules.Until(2500)}
        return [
            thompson(2, 7, width=noise_sd, **commit),
            lin_ucb(2, 7, **commit),
            meb(2, 7, **commit),
            meb_naive(2, 7, **commit),
            lin_ucb(2, 7, width=1.1, name="RobustUCB", **commit),
            meb_dr(2, 7, name=OURS, **commit),
        ]
    common: dict[str, Any] = {"floor": FLOOR}
    return [
        thompson(2, 7, width=noise_sd, **common),
        lin_ucb(2, 7, width=sigma_eta, **common),
        meb(2, 7, **common),
        meb_naive(2, 7, **common),
        robust_ucb(2, 7, horizon=horizon, width=sigma_eta, **common),
        meb_dr(2, 7, name=OURS, **common),
        greedy(2, 7, intercept=True, name=LEAST_SQUARES, **common),
    ]


def score_1a(own: "pd.DataFrame", protocol: str) -> "pd.DataFrame":
    """One number per replicate (rows) and policy (columns), on the scale of the protocol."""
    regret = own.pivot(index="replicate", columns="policy", values="clipped_regret")
    return 10 * regret.sub(regret[ORACLE], axis=0) if protocol == "published" else regret


def score_1b(own: "pd.DataFrame", protocol: str) -> "pd.DataFrame":
    """The same for Table 1(b)."""
    if protocol == "as_written":
        return own.pivot(index="replicate", columns="policy", values="clipped_regret")
    total = own.assign(total=own["standard_regret"] * own["time"]).pivot(index=["replicate", "policy"], columns="time", values="total")
    return (10 * (total[5000] - total[2500]) / 2500).unstack("policy")


def tabulate(
    data: CellData, published: dict[tuple[float, float], tuple[float, ...]], score: "Callable[[pd.DataFrame, str], pd.DataFrame]"
) -> "pd.DataFrame":
    """A row per cell and policy: mean, standard deviation, the published number and, where it is the same quantity, the difference.

    The difference is in combined standard errors, that of the published mean of 100 runs taken as our standard deviation / √100.
    """
    import pandas as pd

    keys = [name for name in ("protocol", "source", "sigma_eta", "sigma_e2") if name in data.replicates.columns]
    rows = []
    for key, own in data.replicates.groupby(keys, sort=False):
        labels: dict[str, Any] = dict(zip(keys, key, strict=True))
        scores = score(own, labels["protocol"])
        for policy in [*_learners(scores.columns), *(name for name in (RESTARTED, LEAST_SQUARES, *REFERENCES) if name in scores.columns)]:
            printed = dict(zip(POLICIES, published[labels["sigma_eta"], labels["sigma_e2"]], strict=True)).get(policy, float("nan"))
            mean, sd, n = float(scores[policy].mean()), float(scores[policy].std(ddof=1)), len(scores)
            away = (mean - printed) / (sd * sqrt(1 / n + 1 / RUNS)) if labels["protocol"] == "published" and sd > 0 else float("nan")
            numbers = {"mean": mean, "std_error": sd / sqrt(n), "std_dev": sd, "published": printed, "difference_se": away}
            rows.append(labels | {"policy": policy} | numbers | {"replicates": n, "horizon": int(own["time"].max())})
    return pd.DataFrame(rows)


def cells_of_1a(options: PaperOptions) -> list[SimulationCell]:
    """The cells of Table 1(a) in the protocols that the user chose."""
    shape = {"replicates": options.replicates_or(REPLICATES_1A), "seed": options.seed}
    return [_joined(cell, options.policies) for protocol in options.protocols for cell in cells_1a(protocol, **shape)]


def _joined(cell: SimulationCell, kinds: tuple[str, ...]) -> SimulationCell:
    """A cell in which policies of your own play along, with the floor of the table if they take one."""
    own = [load("policies", kind, Path.cwd()) for kind in kinds]
    made = [code(2, 5, **({"floor": FLOOR} if code.options is None or "floor" in code.options else {})) for code in own]
    named = named_policies([*cell.policies.values(), *made], cell.environment)
    return replace(cell, policies=named, own=[[code.kind, code.checksum] for code in own])


def cells_of_1b(options: PaperOptions) -> list[SimulationCell]:
    """The cells of Table 1(b) in the protocols that the user chose, from the description and from the data if there are any."""
    sources = [HeartStepsData()] + ([HeartStepsData(options.heartsteps_csv)] if options.heartsteps_csv is not None else [])
    shape = {"replicates": options.replicates_or(REPLICATES_1B), "seed": options.seed}
    return [cell for protocol in options.protocols for source in sources for cell in cells_1b(protocol, source=source, **shape)]


def table_1a(data: CellData) -> "pd.DataFrame":
    """Table 1(a) beside the published numbers."""
    return tabulate(data, TABLE_1A, score_1a)


def table_1b(data: CellData) -> "pd.DataFrame":
    """Table 1(b) beside the published numbers."""
    return tabulate(data, TABLE_1B, score_1b)


def sections_1a(table: "pd.DataFrame", data: CellData) -> list[Section]:
    """The report of Table 1(a)."""
    return _sections("table1a", table)


def sections_1b(table: "pd.DataFrame", data: CellData) -> list[Section]:
    """The report of Table 1(b)."""
    return _sections("table1b", table)


def _sections(name: str, table: "pd.DataFrame") -> list[Section]:
    """A section for each protocol and source: our numbers with standard errors, the published ones, and the best learner in bold."""
    groups = [column for column in ("protocol", "source") if column in table.columns]
    found = []
    for key, part in table.groupby(groups, sort=False):
        labels = {column: str(value) for column, value in zip(groups, key, strict=True)}
        found.append(
            Section(
                title=f"{TITLES[name]}, {labels['protocol']}" + (f", from the {labels['source']}" if "source" in labels else ""),
                setting=f"{SETTINGS[name, labels['protocol']]} {int(part['replicates'].iloc[0])} replicates.",
                finding=_finding(part, labels["protocol"]),
                table=_comparison(part, brief=False),
                brief=_comparison(part, brief=True),
                brief_title=": ours|published",
                full=_spreads(part),
                pictures={"_".join([name, *labels.values()]): picture(draw_comparison(part))},
            )
        )
    return found


def _learners(names: Iterable[str]) -> list[str]:
    """The learners of the table's columns: those of the table, then those of your own."""
    return [*LEARNERS, *(name for name in names if name not in (*LEARNERS, RESTARTED, LEAST_SQUARES, *REFERENCES))]


def noise_name(protocol: str) -> str:
    """The header of the column of reward noise: the published protocol uses it as a standard deviation."""
    return "σ_η" if protocol == "published" else "σ_η²"


def _comparison(part: "pd.DataFrame", *, brief: bool) -> Table:
    """Rows are cells, columns policies. An entry is our number ± standard error; below it, the published number and the difference."""
    comparable = bool(part["difference_se"].notna().any())  # then the scale is relative, and references mean nothing on it
    extra = [] if brief or comparable else [name for name in REFERENCES if (part["policy"] == name).any()]
    rows, best, learners = [], set(), _learners(part["policy"].unique())
    if brief and len(learners) > len(LEARNERS):  # 80 columns have no room for all of them
        learners = ["MEB", OURS, *learners[len(LEARNERS) :]]
    for i, ((sigma_eta, sigma_e2), cell) in enumerate(part.groupby(["sigma_eta", "sigma_e2"], sort=False)):
        own = cell.set_index("policy")
        best.add((i, 2 + int(own["mean"].loc[learners].to_numpy().argmin())))
        row = [f"{sigma_eta:g}", f"{sigma_e2:g}"]
        for policy in learners:
            mean, se, printed, away = (float(own[c][policy]) for c in ("mean", "std_error", "published", "difference_se"))
            difference = f" ({away:+.1f})" if away == away else ""
            theirs = "" if printed != printed else f"{printed:.3f}"
            short = re.sub(r"\b0\.", ".", f"{mean:.3f}|{theirs}".rstrip("|"))
            row.append(short if brief else f"{mean:.3f} ± {se:.3f}\n{theirs}{difference}")
        rows.append(row + [f"{own['mean'][policy]:.3f}" for policy in extra])
    return Table([noise_name(str(part["protocol"].iloc[0])), "σ_ε²", *learners, *extra], rows, best)


def _spreads(part: "pd.DataFrame") -> Table:
    """All numbers of a section, a row for each cell and policy."""
    columns = ("sigma_eta", "sigma_e2", "policy", "mean", "std_dev", "std_error", "published", "difference_se", "replicates")
    rows = []
    for a, b, policy, *numbers, away, n in part[list(columns)].itertuples(index=False):
        shown = ["" if v != v else f"{v:.4f}" for v in numbers]
        rows.append([f"{a:g}", f"{b:g}", str(policy), *shown, "" if away != away else f"{away:+.1f}", str(n)])
    return Table(
        [
            noise_name(str(part["protocol"].iloc[0])),
            "σ_ε²",
            "policy",
            "mean",
            "std. dev.",
            "std. error",
            "published",
            "difference / s.e.",
            "replicates",
        ],
        rows,
    )


def _finding(part: "pd.DataFrame", protocol: str) -> str:
    """How close our numbers are to the published ones, and which policy is best, in words."""
    own = part[part["policy"].isin(POLICIES)]
    cells = own.pivot(index=["sigma_eta", "sigma_e2"], columns="policy", values="mean")
    wins = (cells["MEB"] < cells[["TS", "UCB"]].min(axis=1)).sum()
    ours = part[part["policy"] == OURS].set_index(["sigma_eta", "sigma_e2"])["mean"]
    words = (
        f"MEB has less regret than both TS and UCB in {wins} of {len(cells)} cells, and {OURS} (ours) less than MEB in "
        f"{(ours.loc[cells.index] < cells['MEB']).sum()}."
    )
    if protocol == "published":
        off = (own["mean"] / own["published"] - 1).abs()
        near = (own["difference_se"].abs() <= 4) | (off <= 0.15)
        quiet = own["sigma_eta"] < 1
        four, robust = quiet & (own["policy"] != "RobustUCB"), quiet & (own["policy"] == "RobustUCB")
        words = (
            f"{near.sum()} of {len(own)} numbers are within 4 combined standard errors or 15 % of the published ones. With σ_η below 1, "
            f"{(off[four] <= 0.35).sum()} of {four.sum()} numbers of TS, UCB, MEB and MEB-naive are within 35 %, and "
            f"{(off[robust] <= 0.35).sum()} of {robust.sum()} of RobustUCB. " + words
        )
    elif wins < len(cells) / 2:
        words += " MEB has no advantage here."
    if len(part["replicates"].unique()) == 1 and part["replicates"].iloc[0] < 20:
        words = "So few replicates that the standard errors are themselves rough. " + words
    low = cells[cells.index.get_level_values("sigma_eta") < 1]
    spread = low.drop(columns="RobustUCB").max(axis=1) - low.drop(columns="RobustUCB").min(axis=1)
    between = f"{spread.min():.3f} to {spread.max():.3f}"
    words += f" Where {noise_name(protocol)} is below 1, TS, UCB, MEB and MEB-naive differ by {between} within a cell."
    restarted = part[part["policy"] == RESTARTED]["mean"]
    if len(restarted):
        words += f" RobustUCB with the restarts its paper describes has {restarted.min():.2f} to {restarted.max():.2f}."
    return words


def draw_comparison(part: "pd.DataFrame") -> "matplotlib.figure.Figure":
    """Our numbers and the published ones side by side, for each policy, in the order of the table."""
    comparable = bool(part["difference_se"].notna().any())
    levels, learners = list(dict.fromkeys(part["sigma_e2"])), _learners(part["policy"].unique())
    colours = colours_of(learners)
    figure = canvas(9.6, 3.3)
    for axes, level in zip(figure.subplots(1, len(levels), squeeze=False)[0], levels, strict=True):
        own = part[part["sigma_e2"] == level]
        noises = list(dict.fromkeys(own["sigma_eta"]))
        for i, policy in enumerate(learners):
            mine = own[own["policy"] == policy].set_index("sigma_eta").loc[noises]
            at = [j + (i - 2.5) * 0.13 for j in range(len(noises))]
            axes.errorbar(at, mine["mean"], yerr=2 * mine["std_error"], fmt="o", ms=5, lw=1.2, color=colours[policy], label=policy)
            if comparable and policy in POLICIES:
                axes.plot(at, mine["published"], "_", ms=11, mew=2, color="0.45", label="published" if i == 4 else None)
        axes.set_xticks(range(len(noises)), [f"{noise:g}" for noise in noises])
        axes.set_title(f"σ_ε² = {level:g}", fontsize=10)
        axes.set_xlabel(noise_name(str(part["protocol"].iloc[0])))
        axes.axhline(0, color="0.7", linewidth=1, zorder=0)
        plain(axes, grid="y")
    figure.axes[0].set_ylabel("10 × regret, as published" if comparable else "average clipped regret")
    legend_above(figure, columns=7)
    return figure
