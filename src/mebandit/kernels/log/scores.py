"""The scores of the rounds of a stored log, from which standard errors follow.

Rounds are worked on a tile at a time, sorted by action: what only the rounds of one action need is then done for these alone, without a
branch. Every score is v e - s Σe θ, with the regressors v and two numbers e and s for every round: a correction for leverage changes e.
"""

import math
from typing import NamedTuple

import numpy as np

from ..compile import item, part, spliced, uncounted
from ..layout import INVERSE, PSEUDO, entry
from .calibration import times_packed
from .crossproducts import sort_by_action, take
from .linear import add, add_outer, add_product, add_quadratic, fill, multiply, stretch, total, write_linear, write_quadratic

LARGEST_LEVERAGE = 0.98  # a round or cluster that decides a coefficient alone would otherwise get an infinite score
TILE = 504  # rounds that are worked on at a time: what is computed of them stays in the processor's cache


ONES, REWARDS, INVERSE_PROPENSITY, WEIGHT, RESIDUAL, OWN, ALONG, LIFT, ROW = range(9)  # rows of `Tile.rows`


class Tile(NamedTuple):
    """Rounds that are worked on, sorted by action, and room for what is computed of them; a column for each round. See
    `estimation.scores.new_tile`."""

    begin: np.ndarray
    """where each action begins, (K + 1,)"""
    order: np.ndarray
    """the number of each among the rounds of the tile"""
    place: np.ndarray
    """the place of each in the sums; one entry where all have the same"""
    x: np.ndarray
    """x~ - center, in fives"""
    near: np.ndarray
    """x^ - center, in fives"""
    offered: np.ndarray
    """pi^nd(b) where b was allowed, else 0, (K, T)"""
    error: np.ndarray
    """Σe theta where it differs between rounds, (d, T)"""
    psi: np.ndarray
    """(K p, T)"""
    product: np.ndarray
    """Σe theta of one round, (d,)"""
    rows: np.ndarray
    """1; r; u, one by the propensity of the action taken; its pi^nd u; e; v'M^-1 v; v'M^-1 s Σe theta; lift; a spare one, (9, T)"""


@uncounted
def add_scores(meat, sums, places, first, run, scoring, seen, log, tile):
    """Sums of psi psi' over the rounds of a log by method, and of psi by cluster or group; see `estimation.scores.Scoring`.

    psi = w v (v'theta - y) - s Sigma_e theta by action, w and y by the method's weighting; s = kappa w, or pi^nd(a) where the paper's
    formula was solved as it stands (`plain`). v is x~, or x^ where the method regresses on that: by one map for all rounds or, if there is
    no such map, from `seen`; after a 1 if there is an intercept. The nuisance Jacobian then adds what the estimation of mean and S_x does.

    The place of a round in `sums`, (methods, places, K p), is `places[t]`; without clusters the number of its run of rounds modulo the
    number of places, if the log's row `first` is the first round. Rows of the predictions beyond the features are those of a baseline,
    which the outcome regressions alone read.
    """
    n_methods, n_actions, p = scoring.theta.shape
    for start in range(0, log.actions.size, TILE):
        m = min(TILE, log.actions.size - start)
        gather(tile, start, m, scoring, seen, log)
        write_places(tile.place, tile.order, places, first, run, start, m, sums.shape[1])
        for g in range(n_methods):
            with_jacobian = scoring.calibrated[g] and scoring.jacobian.table.shape[0] > 0
            whole = scoring.weighting[g] == PSEUDO or with_jacobian or scoring.plain[g].any()
            for b in range(n_actions):
                score_action(b, g, whole, start, m, scoring, tile, log)
            if with_jacobian:
                add_calibration(start, m, scoring, tile, log)
            for b in range(1 if whole else n_actions):
                lo, hi = (0, m) if whole else (tile.begin[b], tile.begin[b + 1])
                top, size = (0, n_actions * p) if whole else (b * p, p)
                add_outer(meat[g, top : top + size, top : top + size], tile.psi[top : top + size], lo, hi)
                add_places(item(sums, g), tile.place, tile.psi, top, size, lo, hi)


@spliced
def write_places(out, order, places, first, run, start, m, n_places):
    """The place of each round among the sums; one entry where all have the same."""
    if out.size == 1:
        out[0] = ((first + start) // run) % n_places
    else:
        for k in range(m):
            t = start + order[k]
            out[k] = places[t] if places.size > 0 else (first + t) % n_places


@uncounted
def add_places(sums, place, psi, top, size, lo, hi):
    """Add rounds to the sums of psi by place, (places, K p)."""
    if place.size == 1:
        for i in range(top, top + size):
            sums[place[0], i] += total(stretch(psi, i, lo, hi))
    else:
        for k in range(lo, hi):
            for i in range(top, top + size):
                sums[place[k], i] += psi[i, k]


@spliced
def gather(tile, start, m, scoring, seen, log):
    """Sort some rounds by action, and compute what all methods read of them."""
    sort_by_action(part(log.actions, start, m), tile.begin, tile.order)
    rows, order = tile.rows, part(tile.order, 0, m)
    ones, u, weight = stretch(rows, ONES, 0, m), item(rows, INVERSE_PROPENSITY), item(rows, WEIGHT)
    for i in range(log.predicted.shape[0]):
        take(item(tile.x, i), stretch(log.predicted, i, start, start + m), order)
        add(stretch(tile.x, i, 0, m), ones, -scoring.center[i])
    for i in range(seen.shape[0] if seen.shape[1] > 0 else 0):
        take(item(tile.near, i), stretch(seen, i, start, start + m), order)
        add(stretch(tile.near, i, 0, m), ones, -scoring.center[i])
    for i in range(scoring.to_calibrated.shape[0]):
        write_linear(stretch(tile.near, i, 0, m), item(scoring.to_calibrated, i), tile.x, 0)
    take(item(rows, REWARDS), part(log.rewards, start, m), order)
    take(u, part(log.propensities, start, m), order)
    alike = log.allowed.shape[0] == 1 and log.stabilizer.shape[0] == 1
    for b in range(log.stabilizer.shape[1]):
        for k in range(1 if alike else m):
            t = start + order[k]
            allowed = log.allowed[entry(t, log.allowed.shape[0]), b]
            tile.offered[b, k] = log.stabilizer[entry(t, log.stabilizer.shape[0]), b] if allowed else 0.0
        if alike:
            fill(stretch(tile.offered, b, 0, m), tile.offered[b, 0])
        for k in range(tile.begin[b], tile.begin[b + 1]):
            u[k] = 1.0 / u[k]
            weight[k] = tile.offered[b, k] * u[k]


@spliced
def score_action(b, g, whole, start, m, scoring, tile, log):
    """psi of method g for action b: for the `whole` tile, or for the rounds of that action."""
    weighting, plain, leverage, varying = scoring.weighting[g], scoring.plain[g, b], scoring.leverage, scoring.varying
    first, end, rows = tile.begin[b], tile.begin[b + 1], tile.rows
    lo, hi = (0, m) if weighting == PSEUDO else (first, end)
    x = tile.near if scoring.calibrated[g] and scoring.to_calibrated.shape[0] == 0 else tile.x
    e, own, along = stretch(rows, RESIDUAL, lo, hi), stretch(rows, OWN, lo, hi), stretch(rows, ALONG, lo, hi)
    weight = stretch(tile.offered, b, lo, hi) if weighting == PSEUDO else stretch(rows, WEIGHT if weighting == INVERSE else ONES, lo, hi)
    taken, share = (stretch(tile.offered, b, lo, hi), 1.0) if plain else (weight, scoring.kappa[g, b])
    write_linear(e, item(item(scoring.fitted, g), b), x, lo)
    if weighting == PSEUDO:
        subtract_pseudo_outcomes(b, scoring, tile)
    else:
        add(e, stretch(rows, REWARDS, lo, hi), -1.0)
    multiply(e, weight, 1.0)
    if varying:
        write_errors(tile, item(item(scoring.theta, g), b), start, m, log)
    if leverage.kind > 0:
        write_along(tile, leverage, g, b, varying, x, lo, hi)
        multiply(along, taken, share)
        if weighting == PSEUDO:
            lifted = stretch(rows, ROW, first, end)
            write_quadratic(lifted, item(leverage.cross, b), tile.x, first)
            add_product(stretch(rows, ALONG, first, end), lifted, stretch(rows, LIFT, first, end), 1.0)
        write_quadratic(own, item(item(leverage.own, g), b), x, lo)
        correct(e, weight, own, along, leverage.kind)
    write_scores(b, g, lo, hi, taken, share, varying, scoring, tile)
    if whole:
        write_others(b, g, 0, lo, plain, varying, scoring, tile)
        write_others(b, g, hi, m, plain, varying, scoring, tile)


@spliced
def write_scores(b, g, lo, hi, taken, share, varying, scoring, tile):
    """psi = v e - s Σe theta, s = share taken; and what each round does to the outcome regression."""
    d, p = scoring.error.shape[2], scoring.theta.shape[2]
    first, end, at, intercept, rows = tile.begin[b], tile.begin[b + 1], b * p, p - d, tile.rows
    x, e = tile.near if scoring.calibrated[g] else tile.x, stretch(rows, RESIDUAL, lo, hi)
    if intercept:
        fill(stretch(tile.psi, at, lo, hi), 0.0)
        add(stretch(tile.psi, at, lo, hi), e, 1.0)
    for i in range(d):
        out = stretch(tile.psi, at + intercept + i, lo, hi)
        write_score(out, e, stretch(x, i, lo, hi), scoring.center[i], taken, share * scoring.error[g, b, i])
        if varying:
            add_product(out, taken, stretch(tile.error, i, lo, hi), -share)
    if scoring.weighting[g] == PSEUDO and scoring.leverage.kind > 0:
        for i in range(p):
            effect = stretch(rows, ROW, first, end)
            write_linear(effect, item(item(scoring.leverage.outcome_effect, b), i), tile.x, first)
            add_product(stretch(tile.psi, at + i, first, end), effect, stretch(rows, LIFT, first, end), -1.0)


@spliced
def write_others(b, g, lo, hi, plain, varying, scoring, tile):
    """psi of an action in rounds in which others were taken: what is subtracted there of the error, if anything."""
    d, p = scoring.error.shape[2], scoring.theta.shape[2]
    for i in range(p):
        out = stretch(tile.psi, b * p + i, lo, hi)
        fill(out, 0.0)
        if plain and i >= p - d:
            subtracted = stretch(tile.error, i - (p - d), lo, hi) if varying else stretch(tile.rows, ONES, lo, hi)
            add_product(out, stretch(tile.offered, b, lo, hi), subtracted, -1.0 if varying else -scoring.error[g, b, i - (p - d)])


@spliced
def subtract_pseudo_outcomes(b, scoring, tile):
    """From e = v'theta - z'beta of action b: what the pseudo-outcome z'beta + u (r - z'beta) has beyond z'beta where b was taken.

    With a correction for leverage, beta is at each of its rounds the one without that round: z'beta - h lift, with
    lift = (r - z'beta) / (1 - h) and h = z'(Σ zz')^-1 z the leverage of the round in the regression. Without one, h is 0.
    """
    lo, hi, rows = tile.begin[b], tile.begin[b + 1], tile.rows
    fitted, own = stretch(rows, ROW, lo, hi), stretch(rows, OWN, lo, hi)
    write_linear(fitted, item(scoring.beta, b), tile.x, lo)
    if scoring.leverage.kind > 0:
        write_quadratic(own, item(scoring.leverage.outcome, b), tile.x, lo)
    else:
        fill(own, 0.0)
    e, lift, rewards = stretch(rows, RESIDUAL, lo, hi), stretch(rows, LIFT, lo, hi), stretch(rows, REWARDS, lo, hi)
    leave_out(e, lift, own, fitted, rewards, stretch(rows, INVERSE_PROPENSITY, lo, hi))


@uncounted
def leave_out(e, lift, own, fitted, rewards, inverse):
    """`subtract_pseudo_outcomes`, from h = `own` and z'beta = `fitted`."""
    for k in range(e.size):
        h = min(max(own[k], 0.0), LARGEST_LEVERAGE)
        lift[k] = (rewards[k] - fitted[k]) / (1.0 - h)
        e[k] -= lift[k] * (inverse[k] - h)


@spliced
def write_errors(tile, theta, start, m, log):
    """Σe theta where every round has a Σe of its own."""
    d, product = tile.error.shape[0], tile.product
    for k in range(m):
        times_packed(log.errors[start + tile.order[k]], theta[theta.size - d :], d, product)
        for i in range(d):
            tile.error[i, k] = product[i]


@spliced
def write_along(tile, leverage, g, b, varying, x, lo, hi):
    """v'M^-1 Σe theta."""
    along, row = stretch(tile.rows, ALONG, lo, hi), stretch(tile.rows, ROW, lo, hi)
    if varying:
        fill(along, 0.0)
        for i in range(tile.error.shape[0]):
            write_linear(row, item(item(item(leverage.precision, g), b), i), x, lo)
            add_product(along, row, stretch(tile.error, i, lo, hi), 1.0)
    else:
        write_linear(along, item(item(leverage.along, g), b), x, lo)


@uncounted
def correct(e, weight, own, along, kind):
    """(I - H)^-1/2 psi (kind 2) or (I - H)^-1 psi (kind 3), psi = v e - c, H = w vv'M^-1: what changes is e.

    H has the one eigenvalue h = w v'M^-1 v other than 0, the leverage of the round: the derivative of its own fitted value. So psi moves
    along v, by w v'M^-1 psi times 1 / (r (1 + r)), r = sqrt(1 - h), or times 1 / (1 - h). `own` is v'M^-1 v, `along` v'M^-1 c.
    """
    for k in range(e.size):
        left = 1.0 - min(max(weight[k] * own[k], 0.0), LARGEST_LEVERAGE)
        root = math.sqrt(left)
        e[k] += weight[k] * (e[k] * own[k] - along[k]) / (left if kind == 3 else root * (1.0 + root))


@uncounted
def write_score(out, e, x, center, taken, error):
    """One row of psi."""
    for k in range(out.size):
        out[k] = e[k] * (x[k] + center) - taken[k] * error


@spliced
def add_calibration(start, m, scoring, tile, log):
    """What the uncertainty of the calibration adds to psi: the nuisance Jacobian times y = x~ - mean and the packed yy' - Sigma_e - S_x."""
    jacobian = scoring.jacobian
    for i in range(tile.psi.shape[0]):
        add_quadratic(stretch(tile.psi, i, 0, m), item(jacobian.table, i), tile.x, 0)
        for k in range(m if scoring.varying else 0):
            for j in range(jacobian.by_error.shape[1]):
                tile.psi[i, k] -= jacobian.by_error[i, j] * log.errors[start + tile.order[k], j]
