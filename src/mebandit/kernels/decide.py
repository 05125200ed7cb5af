"""From a fit to the action probabilities of a round, and the draw."""

import math

import numpy as np

from .compile import jit, part, quotient, seldom, spliced
from .layout import (
    BAYES_ORACLE,
    CHOICE,
    EVIDENCE,
    EVIDENCE_SQ,
    GREEDY,
    INTERCEPT,
    N_ACTIONS,
    ORACLE,
    PSEUDO,
    ROBUST,
    RULE,
    THOMPSON,
    UNIFORM,
    WEIGHTING,
    WIDTH,
    factor_at,
    fit_width,
    noise_at,
    packed_size,
    prior_fit,
    robust_fit,
)
from .limits import LEAST
from .linalg import dot, quadratic_form
from .random import normal_cdf
from .sums import EVIDENCE_NEEDED


@spliced
def clip_to_floor(probabilities, allowed, floor):
    """p_a = floor + (1 - n floor) e_a / sum e with e = max(p - floor, 0), among the n allowed actions; 0 elsewhere.

    A vector that keeps the floor is left as it is; certainty about one action becomes 1 - (n - 1) floor for it.
    """
    n, total = 0, 0.0
    for a in range(probabilities.size):
        if allowed[a]:
            n += 1
            total += max(probabilities[a] - floor, 0.0)
    for a in range(probabilities.size):
        if not allowed[a]:
            probabilities[a] = 0.0
        elif total > 0.0:
            probabilities[a] = min(floor + (1.0 - n * floor) * quotient(max(probabilities[a] - floor, 0.0), total), 1.0)
        else:
            probabilities[a] = 1.0 / n


@spliced
def choose_best(scores, allowed, out):
    """Probability one for the largest score among the allowed; equal scores share it, so that labels never decide."""
    best, ties = -np.inf, 0
    for a in range(out.size):
        if allowed[a] and scores[a] > best:
            best, ties = scores[a], 0
        if allowed[a] and scores[a] == best:
            ties += 1
    for a in range(out.size):
        out[a] = 1.0 / ties if allowed[a] and scores[a] == best else 0.0


@jit
def best_of_normals(work, allowed, out):
    """out[a] = P(s_a is the largest) for independent s_b ~ N(mean_b, sd_b^2), b allowed; `work` holds the means, then the sds.

    Two arms: the exact normal probability. More: the integral of f_a(s) prod_{b != a} F_b(s) by eight-point Gauss-Legendre on
    panels cut where any arm's distribution bends, over the range where the maximum can lie. What it returns is normalised and is
    itself what the action is drawn from.
    """
    n_actions, sd = out.size, out.size
    n, first, second = 0, -1, -1
    low, high = -np.inf, -np.inf
    for a in range(n_actions):
        out[a] = 0.0
        if allowed[a]:
            n += 1
            second = first
            first = a
            low = max(low, work[a] - 8.0 * work[sd + a])
            high = max(high, work[a] + 8.0 * work[sd + a])
    if n == 1:
        out[first] = 1.0
        return
    if n == 2:
        variance = work[sd + first] * work[sd + first] + work[sd + second] * work[sd + second]
        out[first] = normal_cdf((work[first] - work[second]) / math.sqrt(variance))
        out[second] = 1.0 - out[first]
        return
    cuts, n_cuts = 2 * n_actions, cut_panels(work, allowed, n_actions, low, high)
    for panel in range(cuts, cuts + n_cuts - 1):
        half = 0.5 * (work[panel + 1] - work[panel])
        if half > 0.0:
            for node in range(8):
                side = 1.0 if node % 2 else -1.0
                s = work[panel] + half * (1.0 + side * _NODES[node // 2])
                everyone = half * _NODE_WEIGHTS[node // 2]
                for b in range(n_actions):
                    if allowed[b]:
                        everyone *= normal_cdf((s - work[b]) / work[sd + b])
                if everyone > 0.0:
                    for a in range(n_actions):
                        if allowed[a]:
                            z = (s - work[a]) / work[sd + a]
                            density = math.exp(-0.5 * z * z) * 0.3989422804014327 / work[sd + a]
                            out[a] += density * everyone / normal_cdf(z)
    total = 0.0
    for a in range(n_actions):
        total += out[a]
    if not 0.0 < total < np.inf:  # everything lies between two nodes: one mean is far above all others
        choose_best(work, allowed, out)
        total = 1.0
    for a in range(n_actions):
        out[a] /= total


@seldom
def cut_panels(work, allowed, n_actions, low, high):
    """Sorted cuts in [low, high], after the means and sds in `work`, at 0, 2, 4 and 8 sds about each arm that may be the best."""
    n, cuts = 0, 2 * n_actions
    for a in range(n_actions):
        mean, sd = work[a], work[n_actions + a]
        if allowed[a] and mean + 8.0 * sd >= low:
            for step in (-8.0, -4.0, -2.0, 0.0, 2.0, 4.0, 8.0):
                cut = min(max(mean + step * sd, low), high)
                k = cuts + n
                while k > cuts and work[k - 1] > cut:
                    work[k] = work[k - 1]
                    k -= 1
                work[k] = cut
                n += 1
    return n


_NODES = (0.1834346424956498, 0.5255324099163290, 0.7966664774136267, 0.9602898564975363)
_NODE_WEIGHTS = (0.3626837833783620, 0.3137066458778873, 0.2223810344533745, 0.1012285362903763)


@spliced
def robust_earns_more(extra):
    """Whether the doubly robust fit, acting on x~, has shown that it earns more than the regression."""
    return extra[EVIDENCE] > EVIDENCE_NEEDED * math.sqrt(extra[EVIDENCE_SQ])


@spliced
def choose_firmly(rule, scores, allowed, out):
    """How all rules choose but Thompson's: the best score."""
    choose_best(scores, allowed, out)


@spliced
def choose(rule, scores, allowed, out):
    """How any rule chooses."""
    if rule == THOMPSON:
        best_of_normals(scores, allowed, out)
    else:
        choose_best(scores, allowed, out)


@spliced
def propose(choose, recipe, memory, context, oracle, floor, exploring, out, work):
    """The action probabilities of one round, floor kept: the only place where a fit becomes a decision.

    `choose` is one of the two functions above.
    """
    spec = recipe.spec
    n_actions, rule = spec[N_ACTIONS], spec[RULE]
    if exploring or rule == UNIFORM:
        for a in range(n_actions):
            out[a] = 1.0
        floor = 0.0
    else:
        if rule == ORACLE or rule == BAYES_ORACLE:
            for a in range(n_actions):
                s = 0.0
                for i in range(oracle.theta.shape[1]):
                    s += oracle.theta[a, i] * (context.z[i + spec[INTERCEPT]] if rule == ORACLE else oracle.guess[i])
                work[a] = s
        else:
            write_scores(recipe, memory, context, work)
        choose(rule, work, context.allowed, out)
    clip_to_floor(out, context.allowed, floor)


@spliced
def write_scores(recipe, memory, context, work):
    """The score of each action, at the front of `work`; for Thompson's rule the standard deviations after them."""
    spec, extra, seen = recipe.spec, memory.extra, context.seen
    n_actions, rule, p = spec[N_ACTIONS], spec[RULE], context.z.size
    width = recipe.tuning[WIDTH]
    if rule == ROBUST and extra[CHOICE] > 0.0:
        width += 2.0 ** (extra[CHOICE] - 1.0)
    begin, q = 0, p
    if spec[WEIGHTING] == PSEUDO:
        if robust_earns_more(extra):
            begin, q, rule, seen = robust_fit(n_actions, 0), p - 1, GREEDY, part(context.z, 1, p - 1)
        width *= math.sqrt(max(memory.fit[prior_fit(n_actions) * fit_width(p) + noise_at(p)], 0.0))
    for a in range(n_actions):
        row = (begin + a) * fit_width(p)
        s = dot(part(memory.fit, row, q), seen, q)
        if rule != GREEDY:
            factor = part(memory.fit, row + factor_at(p), packed_size(p))
            spread = width * math.sqrt(max(quadratic_form(recipe.dims, factor, p, seen, part(work, 2 * n_actions, p)), 0.0))
            if rule == THOMPSON:
                work[n_actions + a] = max(spread, 1e-12 * (1.0 + abs(s)))
            else:
                s += spread
        work[a] = s


@spliced
def draw(probabilities, u):
    """The action in whose share of (0, 1) the uniform u falls; none that has less than `LEAST`."""
    total, last = 0.0, 0
    for a in range(probabilities.size):
        if probabilities[a] >= LEAST:
            total += probabilities[a]
            last = a
            if u < total:
                return a
    return last
