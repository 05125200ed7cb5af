"""The pages of the docs that the studies of intervals write."""

from collections.abc import Callable

from mebandit.experiments.anytime import LATE, LOOKS, AnytimeStudy, run_anytime
from mebandit.experiments.baselines import ROUNDS, baseline_table
from mebandit.experiments.mixtures import mixture_table


def anytime_page(replicates: int, command: str) -> str:
    """The page on anytime bands.

    Args:
        replicates: Simulated trials.
        command: What writes the page.
    """
    return anytime_text(run_anytime(replicates=replicates, workers=1), command)


def anytime_text(found: AnytimeStudy, command: str) -> str:
    """The same from a study.

    Args:
        found: The study.
        command: What writes the page.
    """
    parts = [
        "# Bands that hold at every look",
        "A 95 % interval holds in 95 of 100 trials at one look. Who looks again and again, and stops when it excludes zero, is wrong more "
        "often. `interval(anytime=True)`, `mb.confidence_sequence` and `mebandit fit --anytime` give bands that hold at all looks "
        "together. They are asymptotic confidence sequences: scores are martingale differences, so their sum is close to a "
        "Brownian motion, and "
        "Robbins' normal mixture bounds that at all times. This page counts how often the truth leaves the band, and how wide it is.",
        f"**Setting.** The default policy, `mb.meb_dr(2, 2)`, in the world of [Coverage in small trials](small-samples.md) with normal "
        f"contexts and errors. Every reward comes {LATE} rounds after its decision. The log is looked at {len(LOOKS)} times, with "
        f"{LOOKS[0]}, {LOOKS[1]}, ..., {LOOKS[-1]} rewards, and analysed by `dr`. {found.replicates:,} trials, seed {found.seed}. A "
        "percentage near 5 has a standard error of "
        f"{100 * (0.05 * 0.95 / found.replicates) ** 0.5:.1f} points.",
        "**Order.** A look uses the rounds whose reward has come. Here every reward comes equally late, so that these are the first rounds "
        "in the order of decisions, and in the order of arrivals too. Where delays differ, either order is valid if the delay "
        "does not depend "
        "on the reward: the sequence follows the time column, or the rows as they stand.",
        "## How often the truth leaves the band",
        "The share of trials in %, in which the truth is outside at any look from the first one on, for every parameter. The last column "
        "has the same for one-look intervals, from the smallest to the largest of the parameters.",
        found.left_table().as_markdown(),
        "## How wide the band is",
        "The width of the band of the average effect, in widths of the one-look interval at the same number of rounds. It is narrowest at "
        "about 500 rounds. In the first dozens of rounds it is many times as wide, since Student's t with few degrees of freedom has heavy "
        "tails. A trial has no band while the guard decides.",
        found.width_table().as_markdown(),
        "**Values of policies.** `value(..., reward_bounds=(0, 1))` gives empirical-Bernstein bands too. They need no large samples, only "
        "rewards within known bounds, and are wider.",
        f"`{command}` writes this page.",
        "",
    ]
    return "\n\n".join(parts)


def baseline_page(replicates: int, command: str) -> str:
    """The page on baselines.

    Args:
        replicates: Simulated trials of each setting.
        command: What writes the page.
    """
    parts = [
        "# What a baseline gives",
        "`dr` uses a working model of the reward, a regression in the rounds of each action. `baseline=` adds columns to it that are not "
        "moderators, such as the last reward before the decision. Where they explain the reward, standard errors get smaller. What is "
        "estimated does not change, and a wrong working model does no harm, because the probabilities are known:",
        "$$y_t = z_t^\\top \\beta_a + \\frac{1\\{a_t = a\\}}{\\pi_t(a)} (r_t - z_t^\\top \\beta_a), \\qquad z_t = (1, \\tilde x_t, s_t),$$",
        "where $s_t$ are the columns of the baseline. They must be known before the action is drawn. They may be measured with error. The "
        "regression has an intercept, so that centring them changes nothing.",
        f"**Setting.** The default policy, {ROUNDS} rounds, normal contexts and errors. A further column $s$, independent of the context, "
        "adds $g(s)$ to every reward, with about half of the reward's variance. $s$ with error has the reliability 0.8. "
        f"{replicates:,} trials of each.",
        baseline_table(replicates=replicates, workers=1).as_markdown(),
        f"`{command}` writes this page.",
        "",
    ]
    return "\n\n".join(parts)


def mixtures_page(replicates: int, command: str) -> str:
    """The page on mixtures of error kinds.

    Args:
        replicates: Simulated trials of each setting.
        command: What writes the page.
    """
    parts = [
        "# Mixtures of error kinds",
        "A prediction with classical error is the truth and an error, and one with Berkson error differs from the truth by an error that "
        "is independent of the prediction. Real predictions are often in between. `from_validation` uses a general linear model that holds "
        "for every mixture, and its uncertainty is part of the intervals. This page counts whether they hold.",
        "**Setting.** x = w + u and x̃ = w + v with normal w, u and v; the error's variance is 0.5, and the table says which "
        "share of it is "
        "Berkson's, of u. 1,000 rounds of a policy that reads x̃, analysed by `dr` with an error model from validation pairs. "
        f"{replicates:,} trials of each; a percentage has a standard error of {100 * (0.05 * 0.95 / replicates) ** 0.5:.1f} points.",
        "Coverage of 95 % intervals in %:",
        mixture_table(replicates=replicates, workers=1).as_markdown(),
        f"`{command}` writes this page.",
        "",
    ]
    return "\n\n".join(parts)


PAGES: dict[str, Callable[[int, str], str]] = {"anytime": anytime_page, "baseline": baseline_page, "mixtures": mixtures_page}
"""by name, from the number of trials and the command"""
