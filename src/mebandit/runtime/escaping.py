"""Names that users chose (columns, policies, participants), escaped for figures and for spreadsheets.

A figure reads dollar signs as formulas, and a spreadsheet computes cells that begin with an equals sign.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

FORMULA = re.compile(r"[=+\-@\t\r]")
"""the first character of a cell that a spreadsheet computes"""


def in_figure(name: object) -> str:
    """A name as a label of a figure. Dollar signs are escaped; a leading underscore would hide the label and gets a space before it."""
    text = str(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def in_cell(text: str) -> str:
    """A text as a cell of a CSV for spreadsheets. What a spreadsheet would compute gets an apostrophe in front; numbers do not."""
    if not FORMULA.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def as_csv(table: "pd.DataFrame") -> str:
    """A table as a CSV for spreadsheets, numbers in full precision. For files that mebandit reads back, use pandas' own writer."""
    import pandas as pd
    from pandas.api.types import is_numeric_dtype

    cells = {i: column if is_numeric_dtype(column) else column.map(_in_cell) for i, (_, column) in enumerate(table.items())}
    return pd.DataFrame(cells).to_csv(index=False, header=[in_cell(str(name)) for name in table.columns])


def _in_cell(value: object) -> object:
    return in_cell(value) if isinstance(value, str) else value
