"""Names from outside (of columns, policies, participants) where figures and spreadsheets would read them as something else."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

FORMULA = re.compile(r"[=+\-@\t\r]")
"""how a cell begins that a spreadsheet computes"""


def in_figure(name: object) -> str:
    """A name as a label of a figure: its dollar signs begin no formula, and an underscore at its beginning does not hide it."""
    text = str(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def in_cell(text: str) -> str:
    """A text as a cell of a spreadsheet: what would be computed there gets an apostrophe in front. Text that is a number stays one."""
    if not FORMULA.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def as_csv(table: "pd.DataFrame") -> str:
    """A table for people as a CSV, numbers in full; what is read back by programs is written without this."""
    import pandas as pd
    from pandas.api.types import is_numeric_dtype

    cells = {i: column if is_numeric_dtype(column) else column.map(_in_cell) for i, (_, column) in enumerate(table.items())}
    return pd.DataFrame(cells).to_csv(index=False, header=[in_cell(str(name)) for name in table.columns])


def _in_cell(value: object) -> object:
    return in_cell(value) if isinstance(value, str) else value
