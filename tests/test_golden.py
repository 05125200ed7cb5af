"""The numbers of version 0.1.0: what the library computed then it computes now. Those of meb_dr are today's, since it decides otherwise."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden import Entry, entries

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())
ROUNDING = 1e-12
"""of the largest number: another processor, or another order of additions, rounds otherwise"""


@pytest.mark.parametrize(("name", "make"), list(entries().items()))
def test_the_numbers_are_those_of_version_0_1_0(name: str, make: Callable[[], Entry]) -> None:
    found, expected = make(), GOLDEN[name]
    if found["digest"] == expected["digest"]:
        return
    for key in expected.keys() - {"digest"}:
        old, new = np.asarray(expected[key]), np.asarray(found[key])
        np.testing.assert_allclose(new, old, rtol=0, atol=ROUNDING * np.nanmax(np.abs(old), initial=1.0), err_msg=key)
