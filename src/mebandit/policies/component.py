"""What the parts of a policy have in common: each prints as its constructor call and contributes to what the compiled code reads."""

from dataclasses import MISSING, fields
from typing import Any

from mebandit.values import Floats, Integers


class Component:
    """The base of the frozen dataclasses that make up a policy."""

    def __repr__(self) -> str:
        """The constructor call, without the options that are left at their default."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.default is MISSING or getattr(self, f.name) != f.default}  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def write(self, spec: Integers, tuning: Floats) -> None:
        """Enter the component's options into the two vectors that the compiled code reads; `kernels.layout` names their entries.

        Args:
            spec: the whole-numbered choices, changed in place.
            tuning: the real-valued options, changed in place.
        """

    def _set(self, name: str, value: Any) -> None:
        """Store a checked option in the frozen dataclass."""
        object.__setattr__(self, name, value)
