"""Intervals under an adaptive policy, counted; and the page that shows the counts."""

import re
from pathlib import Path

import numpy as np
import pytest

from mebandit.experiments.coverage import ORDER, WORLDS, as_markdown, counted, run_coverage

PAGE = Path(__file__).parents[2] / "docs" / "background" / "coverage.md"
REPLICATES = 250


def test_the_docs_show_what_the_code_counts() -> None:
    """A part of the trials behind the page: every mean coverage is within 4.5 standard errors of the page's."""
    found = run_coverage(horizons=(1000,), replicates=REPLICATES)
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")
    places = [(world, what) for world in WORLDS for what in ("arms", "contrast")]
    for (world, what), part in zip(places, parts[1:5], strict=True):
        for method in ORDER:
            shown = float(re.search(rf"\| 1,000 {method} \| ([\d.]+) ", part)[1]) / 100  # type: ignore[index]
            mean = found.of(world, 1000, method, what).coverage.mean()
            assert abs(mean - shown) < 4.5 * np.sqrt(shown * (1 - shown) / REPLICATES)
            if method in ("meb", "dr", "rc"):
                assert 0.93 <= shown <= 0.97
    assert as_markdown(found, command="it").count("| 1,000 ") == 4 * len(ORDER)


def test_counting() -> None:
    rng = np.random.default_rng(0)
    theta = rng.normal(2.0, 1.0, (40_000, 3))
    found = counted((theta, np.ones_like(theta), np.full_like(theta, np.inf)), np.full(3, 2.0))
    np.testing.assert_allclose(found.coverage, 0.95, atol=4.5 * np.sqrt(0.95 * 0.05 / 40_000))
    assert found.ratio == pytest.approx(1.0, abs=0.02)
    assert counted((theta + 1.96, np.ones_like(theta), np.full_like(theta, np.inf)), np.full(3, 2.0)).coverage == pytest.approx(
        0.5, abs=0.02
    )
