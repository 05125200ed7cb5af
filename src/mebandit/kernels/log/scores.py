"""The scores of the rounds of a stored log, from which standard errors follow.

Rounds are worked on a tile at a time, sorted by action: what only the rounds of one action need is then done for these alone, without a
branch. Every score is v e - s Σe θ, with the regressors v and two numbers e and s for every round: a correction for leverage changes e.
"""

import math
from typing import NamedTuple

import numpy as np

from ..compile import borrowed, jit
from ..layout import INVERSE, PSEUDO, UNIT, entry
from .calibration import times_packed
from .crossproducts import sort_by_action, take
from .linear import FIVE, add_outer, add_product, add_quadratic, fill, subtract, total, write_linear

LARGEST_LEVERAGE = 0.98  # a round or cluster that decides a coefficient alone would otherwise get an infinite score
TILE = 504  # rounds that are worked on at a time: what is computed of them stays in the processor's cache


class Tile(NamedTuple):
    """Rounds that are worked on, sorted by action, and room for what is computed of them; a column for each round."""

    begin: np.ndarray
    """where each action begins, (K + 1,)"""
    order: np.ndarray
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
    rewards: np.ndarray
    inverse: np.ndarray
    """one by the propensity of the action taken"""
    e: np.ndarray
    weight: np.ndarray
    taken: np.ndarray
    """s"""
    own: np.ndarray
    """v'M^-1 v"""
    along: np.ndarray
    """v'M^-1 (s Σe theta)"""
    lift: np.ndarray
    row: np.ndarray


@jit
def new_tile(n_actions, d, p):
    """Room for a tile. Its rows have a length that no power of two divides, else a cache keeps all of them in the same few places."""
    fives, order = -(-d // FIVE) * FIVE, np.empty(TILE, dtype=np.uint32)
    x, near, room = np.zeros((fives, TILE)), np.zeros((fives, TILE)), np.empty((9, TILE))
    offered, error, psi = np.empty((n_actions, TILE)), np.empty((d, TILE)), np.empty((n_actions * p, TILE))
    begin = np.zeros(n_actions + 1, dtype=np.int64)
    rows = room[0], room[1], room[2], room[3], room[4], room[5], room[6], room[7], room[8]
    return Tile(begin, order, x, near, offered, error, psi, *rows)


@jit
def add_scores(meat, sums, places, first, run, scoring, seen, log):
    """Sums of psi psi' over the rounds of a log by method, and of psi by cluster or group; see `estimation.scores.Scoring`.

    psi = w v (v'theta - y) - s Sigma_e theta by action, w and y by the method's weighting; s = kappa w, or pi^nd(a) where the paper's
    formula was solved as it stands (`plain`). v is x~, or x^ where the method regresses on that: by one map for all rounds or, if there is
    no such map, from `seen`; after a 1 if there is an intercept. The nuisance Jacobian then adds what the estimation of mean and S_x does.

    The place of a round in `sums`, (methods, places, K p), is `places[t]`; without clusters the number of its run of rounds modulo the
    number of places, if the log's row `first` is the first round.
    """
    n_actions, p = scoring.theta.shape[1:]
    tile = new_tile(n_actions, log.predicted.shape[0], p)
    place = np.empty(TILE if places.size > 0 or run < TILE else 1, dtype=np.int64)
    add_tiles(meat, sums, places, first, run, scoring, seen, log, tile, place)


@jit
def add_tiles(meat, sums, places, first, run, scoring, seen, log, tile, place):
    """`add_scores`, tile by tile. Views of what is borrowed are not counted, which would take longer than the arithmetic on a row."""
    scoring, seen, log, tile = borrowed(scoring), borrowed(seen), borrowed(log), borrowed(tile)
    n_methods, n_actions, p = scoring.theta.shape
    for start in range(0, log.actions.size, TILE):
        m = min(TILE, log.actions.size - start)
        gather(tile, start, m, scoring, seen, log)
        write_places(place, tile.order, places, first, run, start, m, sums.shape[1])
        for g in range(n_methods):
            with_jacobian = scoring.calibrated[g] and scoring.jacobian.table.shape[0] > 0
            whole = scoring.weighting[g] == PSEUDO or with_jacobian or scoring.plain[g].any()
            for b in range(n_actions):
                score_action(b, g, whole, start, m, scoring, tile, log)
            if with_jacobian:
                add_calibration(start, m, scoring.jacobian, tile, log)
            for b in range(1 if whole else n_actions):
                lo, hi = (0, m) if whole else (tile.begin[b], tile.begin[b + 1])
                top, size = (0, n_actions * p) if whole else (b * p, p)
                add_outer(meat[g, top : top + size, top : top + size], tile.psi[top : top + size], size, lo, hi)
                add_places(sums[g], place, tile.psi, top, size, lo, hi)


@jit
def write_places(out, order, places, first, run, start, m, n_places):
    """The place of each round among the sums; one entry where all have the same."""
    if out.size == 1:
        out[0] = ((first + start) // run) % n_places
    else:
        for k in range(m):
            t = start + order[k]
            out[k] = places[t] if places.size > 0 else (first + t) % n_places


@jit
def add_places(sums, place, psi, top, size, lo, hi):
    """Add rounds to the sums of psi by place, (places, K p)."""
    if place.size == 1:
        for i in range(top, top + size):
            sums[place[0], i] += total(psi[i, lo:hi])
    else:
        for k in range(lo, hi):
            for i in range(top, top + size):
                sums[place[k], i] += psi[i, k]


@jit
def gather(tile, start, m, scoring, seen, log):
    """Sort some rounds by action, and compute what all methods read of them."""
    sort_by_action(log.actions[start : start + m], tile.begin, tile.order)
    order = tile.order[:m]
    for i in range(log.predicted.shape[0]):
        take(tile.x[i], log.predicted[i, start : start + m], order)
        subtract(tile.x[i, :m], scoring.center[i])
    for i in range(min(seen.shape[1], seen.shape[0])):
        take(tile.near[i], seen[i, start : start + m], order)
        subtract(tile.near[i, :m], scoring.center[i])
    for i in range(scoring.to_calibrated.shape[0]):
        write_linear(tile.near[i, :m], scoring.to_calibrated[i], tile.x, 0)
    take(tile.rewards, log.rewards[start : start + m], order)
    take(tile.inverse, log.propensities[start : start + m], order)
    for k in range(m):
        tile.inverse[k] = 1.0 / tile.inverse[k]
    alike = log.allowed.shape[0] == 1 and log.stabilizer.shape[0] == 1
    for b in range(log.stabilizer.shape[1]):
        for k in range(1 if alike else m):
            t = start + order[k]
            allowed = log.allowed[entry(t, log.allowed.shape[0]), b]
            tile.offered[b, k] = log.stabilizer[entry(t, log.stabilizer.shape[0]), b] if allowed else 0.0
        if alike:
            fill(tile.offered[b, :m], tile.offered[b, 0])


@jit
def score_action(b, g, whole, start, m, scoring, tile, log):
    """psi of method g for action b: for the `whole` tile, or for the rounds of that action."""
    weighting, calibrated, kind, varying = scoring.weighting[g], scoring.calibrated[g], scoring.leverage.kind, log.errors.shape[0] > 1
    x = tile.near if calibrated and scoring.to_calibrated.shape[0] == 0 else tile.x
    first, end, e, weight = tile.begin[b], tile.begin[b + 1], tile.e, tile.weight
    lo, hi = (0, m) if whole else (first, end)
    weigh(tile, b, lo, hi, weighting, scoring.kappa[g, b], scoring.plain[g, b])
    write_linear(e[lo:hi], scoring.fitted[g, b], x, lo)
    if weighting == PSEUDO:
        subtract_pseudo_outcomes(b, scoring, tile)
    else:
        for k in range(first, end):
            e[k] -= tile.rewards[k]
    for k in range(lo, hi):
        e[k] *= weight[k]
    if varying:
        write_errors(tile, scoring.theta[g, b], start, lo, hi, log)
    if kind > 0:
        fill(tile.own[lo:hi], 0.0)
        add_quadratic(tile.own[lo:hi], scoring.leverage.own[g, b], x, lo)
        write_along(tile, scoring.leverage, g, b, varying, x, lo, hi)
        if weighting == PSEUDO:
            fill(tile.row[first:end], 0.0)
            add_quadratic(tile.row[first:end], scoring.leverage.cross[b], tile.x, first)
            add_product(tile.along[first:end], tile.row[first:end], tile.lift[first:end], 1.0)
        correct(e[lo:hi], weight[lo:hi], tile.own[lo:hi], tile.along[lo:hi], kind)
    write_scores(b, g, lo, hi, varying, scoring, tile)


@jit
def write_scores(b, g, lo, hi, varying, scoring, tile):
    """psi = v e - s Σe theta, from e and s; and what each round does to the outcome regression."""
    d, p = scoring.center.size, scoring.theta.shape[2]
    first, end, at, intercept = tile.begin[b], tile.begin[b + 1], b * p, p - d
    x = tile.near if scoring.calibrated[g] else tile.x
    for k in range(lo, hi if intercept else lo):
        tile.psi[at, k] = tile.e[k]
    for i in range(d):
        out = tile.psi[at + intercept + i, lo:hi]
        write_score(out, tile.e[lo:hi], x[i, lo:hi], scoring.center[i], tile.taken[lo:hi], scoring.error[g, b, i])
        if varying:
            add_product(out, tile.taken[lo:hi], tile.error[i, lo:hi], -1.0)
    if scoring.weighting[g] == PSEUDO and scoring.leverage.kind > 0:
        for i in range(p):
            write_linear(tile.row[first:end], scoring.leverage.outcome_effect[b, i], tile.x, first)
            add_product(tile.psi[at + i, first:end], tile.row[first:end], tile.lift[first:end], -1.0)


@jit
def subtract_pseudo_outcomes(b, scoring, tile):
    """From e = v'theta - z'beta of action b: what the pseudo-outcome z'beta + u (r - z'beta) has beyond z'beta where b was taken.

    With a correction for leverage, beta is at each of its rounds the one without that round: z'beta - h lift, lift = (r - z'beta) / (1 - h),
    with h = z'(Σ zz')^-1 z the leverage of the round in the regression. Without one, h is 0.
    """
    first, end, lift = tile.begin[b], tile.begin[b + 1], tile.lift
    write_linear(tile.row[first:end], scoring.beta[b], tile.x, first)
    fill(tile.own[first:end], 0.0)
    if scoring.leverage.kind > 0:
        add_quadratic(tile.own[first:end], scoring.leverage.outcome[b], tile.x, first)
    for k in range(first, end):
        h = min(max(tile.own[k], 0.0), LARGEST_LEVERAGE)
        lift[k] = (tile.rewards[k] - tile.row[k]) / (1.0 - h)
        tile.e[k] -= lift[k] * (tile.inverse[k] - h)


@jit
def weigh(tile, b, lo, hi, weighting, kappa, plain):
    """w and s of some rounds for an action."""
    first, end, weight, offered = tile.begin[b], tile.begin[b + 1], tile.weight, tile.offered[b]
    for k in range(lo, hi):
        weight[k] = offered[k] if weighting == PSEUDO else 0.0
    if weighting == UNIT:
        fill(weight[first:end], 1.0)
    elif weighting == INVERSE:
        for k in range(first, end):
            weight[k] = offered[k] * tile.inverse[k]
    for k in range(lo, hi):
        tile.taken[k] = offered[k] if plain else kappa * weight[k]


@jit
def write_errors(tile, theta, start, lo, hi, log):
    """Σe theta where every round has a Σe of its own."""
    d = tile.error.shape[0]
    product = np.empty(d)
    for k in range(lo, hi):
        times_packed(log.errors[start + tile.order[k]], theta[theta.size - d :], d, product)
        for i in range(d):
            tile.error[i, k] = product[i]


@jit
def write_along(tile, leverage, g, b, varying, x, lo, hi):
    """v'M^-1 (s Σe theta)."""
    along = tile.along[lo:hi]
    if varying:
        fill(along, 0.0)
        for i in range(tile.error.shape[0]):
            write_linear(tile.row[lo:hi], leverage.precision[g, b, i], x, lo)
            add_product(along, tile.row[lo:hi], tile.error[i, lo:hi], 1.0)
    else:
        write_linear(along, leverage.along[g, b], x, lo)
    for k in range(lo, hi):
        tile.along[k] *= tile.taken[k]


@jit
def correct(e, weight, own, along, kind):
    """(I - H)^-1/2 psi (kind 2) or (I - H)^-1 psi (kind 3), psi = v e - c, H = w vv'M^-1: what changes is e.

    H has the one eigenvalue h = w v'M^-1 v other than 0, the leverage of the round: the derivative of its own fitted value. So psi moves
    along v, by w v'M^-1 psi times 1 / (r (1 + r)), r = sqrt(1 - h), or times 1 / (1 - h). `own` is v'M^-1 v, `along` v'M^-1 c.
    """
    for k in range(e.size):
        left = 1.0 - min(max(weight[k] * own[k], 0.0), LARGEST_LEVERAGE)
        root = math.sqrt(left)
        e[k] += weight[k] * (e[k] * own[k] - along[k]) / (left if kind == 3 else root * (1.0 + root))


@jit
def write_score(out, e, x, center, taken, error):
    """One row of psi."""
    for k in range(out.size):
        out[k] = e[k] * (x[k] + center) - taken[k] * error


@jit
def add_calibration(start, m, jacobian, tile, log):
    """What the uncertainty of the calibration adds to psi: the nuisance Jacobian times y = x~ - mean and the packed yy' - Sigma_e - S_x."""
    for i in range(tile.psi.shape[0]):
        add_quadratic(tile.psi[i, :m], jacobian.table[i], tile.x, 0)
        for k in range(m if log.errors.shape[0] > 1 else 0):
            for j in range(jacobian.by_error.shape[1]):
                tile.psi[i, k] -= jacobian.by_error[i, j] * log.errors[start + tile.order[k], j]
