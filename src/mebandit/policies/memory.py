"""The memory of a linear policy: which arrays it is made of, how it begins, and what a stored one must keep to."""

from dataclasses import dataclass

import numpy as np

from mebandit import checks
from mebandit.kernels import layout, limits
from mebandit.policies.estimators import Estimator
from mebandit.policies.rules import Rule
from mebandit.values import Floats, LinearState

MOST_NUMBERS = 1 << 28
"""in a state: two gigabytes"""

STATE_LIMIT = 1e290
"""the size of the numbers in a state, to which usable rounds can be added for ever"""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The shapes of the arrays in a `LinearState`, and the rules that its numbers keep.

    Args:
        n_actions: K, the number of actions.
        n_features: p, the number of features, the intercept included.
        estimator, rule: those of the policy.
    """

    n_actions: int
    n_features: int
    estimator: Estimator
    rule: Rule

    @property
    def rows(self) -> tuple[int, int]:
        """How many rows the running sums and the fits have."""
        K, context, two_fits = self.n_actions, self.estimator.context, self.estimator.n_fits > 1
        sums = layout.departure_row(K, K + 1 if two_fits else 0) if two_fits or context is not None else layout.context_row(K)
        curved = context is not None and context.curved
        fits = layout.reference_fit(K) + 1 if two_fits else K if context is None else layout.curve_fit(K) + 1
        return sums + curved, fits

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the parts of a state."""
        (sums, fits), p = self.rows, self.n_features
        return (sums, layout.row_width(p)), (fits, layout.fit_width(p)), (self.rule.n_counters,)

    def empty(self) -> LinearState:
        """The state before the first round: no sums, and the factor of ridge I for every fit."""
        p, ridge = self.n_features, self.estimator.ridge
        state = LinearState(*(np.zeros(shape) for shape in self.shapes))
        diagonal = layout.factor_at(p) + np.cumsum(np.arange(p + 1, 1, -1)) - (p + 1)
        self.fits(state)[:, diagonal] = 1 / ridge if ridge >= limits.LEAST_VARIANCE else 0.0
        self.mark_stale(state)
        return state

    def fits(self, state: LinearState) -> Floats:
        """The rows that hold a fit, all fits of the first kind before those of the second."""
        return state.fit[: self.estimator.n_fits * self.n_actions]

    def mark_stale(self, state: LinearState) -> None:
        """Note that every fit has to be solved for again."""
        self.fits(state)[:, layout.report_at(self.n_features) + layout.STALE] = layout.ALL_STALE

    def check_size(self, dim: int) -> None:
        """Refuse a policy for whose memory there is no room."""
        rule, received = f"make a memory of at most {MOST_NUMBERS:,} numbers", f"{self.n_actions} and {dim}"
        if max(self.n_actions, dim) > MOST_NUMBERS:  # compiled arithmetic cannot take larger ones
            checks.refuse("n_actions and dim", rule, received)
        size = self.rows[0] * layout.row_width(dim + 1) + 2 * self.n_actions
        if size > MOST_NUMBERS:
            checks.refuse("n_actions and dim", rule, f"{received}, which make {size:,}")

    def check(self, state: LinearState) -> None:
        """Refuse what cannot be a state of this policy: compiled code reads and writes it without looking at it."""
        if type(state) is not LinearState:
            checks.refuse("state", "be a LinearState, as init() and update() give it", checks.shown(state))
        for name, part, shape in zip(state._fields, state, self.shapes, strict=True):
            if not (type(part) is np.ndarray and part.dtype == np.float64 and part.shape == shape and part.flags.c_contiguous):
                received = f"{part.dtype} of shape {part.shape}" if isinstance(part, np.ndarray) else checks.shown(part)
                checks.refuse(f"state.{name}", f"be a contiguous array of float64 of shape {shape}", received)
            if not (np.abs(part) <= STATE_LIMIT).all():
                received = checks.shown(part[~(np.abs(part) <= STATE_LIMIT)][0])
                checks.refuse(f"state.{name}", f"hold finite numbers of at most {STATE_LIMIT:g} in size", received)
        self._check_counts(state)
        self.rule.check_counters(state.extra)

    def _check_counts(self, state: LinearState) -> None:
        """Refuse counts that are none, and means of x̃ that no predictions have."""
        K, learned = self.n_actions, state.extra[layout.LEARNED]
        heads = state.sums[: layout.departure_row(K, 0), : layout.FEATURES]
        if not (0 <= learned <= 2**53 and learned == np.floor(learned)):
            checks.refuse("state.extra", "begin with the number of rounds learned", checks.shown(learned))
        if (heads < 0).any():
            checks.refuse("state.sums", "begin with counts and weights of at least 0", checks.shown(heads[(heads < 0).any(axis=1)][0]))
        if self.estimator.context is not None:
            rows = state.sums[[layout.context_row(K), layout.recent_row(K)]]
            first = np.abs(rows[:, layout.FEATURES : layout.gram_at(self.n_features)]).max(axis=1)
            if (first > limits.LARGEST * (1 + 1e-6) * rows[:, layout.WEIGHT]).any():
                checks.refuse("state.sums", f"have means of predictions of at most {limits.LARGEST:g} in size", checks.shown(first))
