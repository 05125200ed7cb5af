"""Frozen versions: named decisions, and learning that gives the same bits however it is divided."""

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mebandit as mb
from mebandit.live.version import drawn, uniforms
from mebandit.policies import Policy, states
from mebandit.values import Observation, Round

SECRET = b"of the tests"
MAKERS: list[Callable[[], Policy]] = [
    lambda: mb.meb_dr(2, 2, floor=0.1, warmup=3),
    lambda: mb.thompson(3, 2, floor=0.05),
    lambda: mb.meb(2, 2, floor=0.1, refit=3),
]


def rounds_of(version: mb.Version, n: int, seed: int) -> list[Round]:
    """Rounds that frozen versions decide, each after all rounds before it were learned."""
    random = np.random.default_rng(seed)
    rounds = []
    for i in range(n):
        x, s = random.normal(size=2), np.diag(random.uniform(0.01, 0.3, 2))
        made = version.decide(f"d{i}", x, s)
        observation = Observation(x, s, np.ones(len(made.propensities), dtype=np.bool_), version.learned + 1, made.auxiliary)
        rounds.append(Round(observation, made.action, made.propensities, float(random.normal() + made.action)))
        version = version.after(rounds[-1:])
    return rounds


@pytest.mark.parametrize("make", MAKERS)
def test_learning_in_any_number_of_steps_gives_the_same_bits(make: Callable[[], Policy]) -> None:
    first = mb.Version(make(), secret=SECRET)
    rounds = rounds_of(first, 25, 1)
    whole = first.after(rounds)
    steps = first
    for begin, end in ((0, 1), (1, 7), (7, 7), (7, 25)):
        steps = steps.after(rounds[begin:end])
    assert states.same(whole.state, steps.state)
    assert whole.fingerprint == steps.fingerprint != first.fingerprint
    assert (first.learned, whole.learned) == (0, 25)
    assert states.same(whole.state, mb.replay(make(), rounds)), "the policy's own fold"
    again = mb.Version(make(), whole.state, learned=25, secret=SECRET)
    asked = [again.decide("x", [0.3, 1.0], 0.1), whole.decide("x", [0.3, 1.0], 0.1)]
    assert asked[0].propensities.tobytes() == asked[1].propensities.tobytes()
    assert asked[0][:3] == asked[1][:3]


def test_what_is_asked_before_changes_no_answer() -> None:
    version = mb.Version(MAKERS[0](), secret=SECRET).after(rounds_of(mb.Version(MAKERS[0](), secret=SECRET), 12, 2))
    xs = np.random.default_rng(3).normal(size=(20, 2))
    masks = np.array([[True, True], [False, True]] * 10)
    forward = version.decide_many([f"n{i}" for i in range(20)], xs, 0.1, allowed=masks)
    for i in reversed(range(20)):
        alone = version.decide(f"n{i}", xs[i], [0.1, 0.1], allowed=masks[i])
        assert (alone.action, alone.uniform, alone.propensities.tolist()) == (
            forward[i].action,
            forward[i].uniform,
            forward[i].propensities.tolist(),
        )
    assert all(made.action == 1 and made.propensity == 1.0 for made in forward[1::2])


def test_uniforms_are_53_bits_of_a_keyed_hash_and_spread_evenly() -> None:
    digest = blake2b("näme".encode(), key=SECRET, digest_size=16).digest()
    bits = "".join(f"{byte:08b}" for byte in digest[:8])[:53]
    assert uniforms(SECRET, "näme")[0] == (int(bits, 2) + 0.5) / 2**53
    n = 20_000
    found = np.array([uniforms(SECRET, f"decision-{i}") for i in range(n)])
    for column in found.T:  # Kolmogorov-Smirnov: beyond 2.2 / sqrt(n) with probability 1.3e-4
        ordered = np.sort(column)
        assert np.abs(ordered - (np.arange(n) + 0.5) / n).max() < 2.2 / np.sqrt(n)
    assert abs(np.corrcoef(found.T)[0, 1]) < 4 / np.sqrt(n)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda p: sum(p) > 1e-3), st.floats(0, 1, exclude_max=True))
def test_the_draw_is_that_of_the_compiled_code(weights: list[float], uniform: float) -> None:
    from mebandit import kernels

    shares = np.array(weights) / np.sum(weights)
    assert drawn(shares, uniform) == kernels.draw(shares, uniform)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mb.Version(mb.meb(2, 1), secret=b""), "secret must be 1 to 64 bytes"),
        (lambda: mb.Version("meb", secret=b"s"), "policy must be a policy"),  # type: ignore[arg-type]
        (lambda: mb.Version(mb.oracle(2, 1), secret=b"s"), "policy must know theta"),
        (lambda: mb.Version(mb.meb(2, 1), secret=b"s").decide("", [1.0], 0.1), "name must be a text"),
        (lambda: mb.Version(mb.meb(2, 1), secret=b"s").decide("a", [np.nan], 0.1), "predicted must be finite"),
        (lambda: mb.Version(mb.meb(2, 1), mb.meb(2, 2).init(), secret=b"s"), "must"),
        (lambda: mb.Version(mb.meb(2, 1), mb.meb(2, 1).init(), learned=3, secret=b"s"), "learned must be what its state has counted"),
    ],
)
def test_what_is_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(mb.InvalidInput, match=words):
        call()
