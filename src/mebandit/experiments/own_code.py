"""Policies and environments of your own, by `module:Name`: imported from beside a spec or from what is installed, told apart by source.

Python code is run. So only a spec that you run names it, and its module is imported as a script of yours would import it.
"""

import difflib
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from mebandit import checks

KIND = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


class OwnCode(NamedTuple):
    """What a `module:Name` stands for."""

    kind: str
    make: Callable[..., Any]
    """a class or a function"""
    checksum: str
    """of the source of its module, and of what that imported from the same place"""

    @property
    def options(self) -> set[str] | None:
        """The names of the keywords that it takes; None: any."""
        found = signature(self.make).parameters.values()
        return None if any(one.kind is Parameter.VAR_KEYWORD for one in found) else {one.name for one in found}

    def __call__(self, *given: Any, **options: Any) -> Any:
        """Make it. What goes wrong in your code is told in a sentence."""
        try:
            return self.make(*given, **options)
        except checks.MebanditError:
            raise
        except Exception as error:
            checks.refuse(self.kind, "be made from what the spec gives", f"{type(error).__name__}: {error}")


_checksums: dict[str, str] = {}
"""of modules as they were when they were imported"""


def is_own(kind: object) -> bool:
    """Whether a kind is written as `module:Name`."""
    return isinstance(kind, str) and ":" in kind


def load(what: str, kind: str, folder: Path | None) -> OwnCode:
    """Import what a `module:Name` stands for.

    Args:
        what: What a refusal names.
        kind: `module:Name`.
        folder: Where the module may lie, before the installed ones are looked through; None: among the installed ones alone.
    """
    if not KIND.fullmatch(kind):
        checks.refuse(what, "be written as module:Name, such as mine:EpsilonGreedy", checks.shown(kind))
    name, _, member = kind.partition(":")
    module = _imported(what, kind, name, None if folder is None else folder.resolve())
    made = getattr(module, member, None)
    if not callable(made):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = difflib.get_close_matches(member, known, 1)
        checks.refuse(what, f"name a class or a function of {module.__file__}", repr(member), f"Is it {near[0]!r}?" if near else "")
    checksum = _checksum(_sources(module))
    if _checksums.setdefault(name, checksum) != checksum:
        checks.refuse(kind, "be as it was when Python imported it", "a changed file", "Start Python again.")
    return OwnCode(kind, made, checksum)


def _imported(what: str, kind: str, name: str, folder: Path | None) -> ModuleType:
    """The module, imported from the folder if it lies there."""
    top = name.partition(".")[0]
    beside = folder is not None and any((folder / part).is_file() for part in (f"{top}.py", f"{top}/__init__.py"))
    loaded = getattr(sys.modules.get(top), "__file__", None)
    if beside and (top in sys.stdlib_module_names or (loaded and folder not in Path(loaded).resolve().parents)):
        checks.refuse(
            what, "name a module whose name no other module has", f"{kind}, beside {loaded or 'one of Python itself'}", "Rename it."
        )
    if not beside and importlib.util.find_spec(top) is None:
        where = "" if folder is None else f" a file {top}.py beside the spec, in {folder}, or"
        checks.refuse(what, f"name{where} an installed module", repr(kind))
    if beside:
        sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        module = importlib.import_module(name)
    except checks.MebanditError:
        raise
    except Exception as error:
        checks.refuse(
            what, "name a module that can be imported", f"{kind}, which ends in {type(error).__name__}: {' '.join(str(error).split())}"
        )
    finally:
        if beside:
            sys.path.remove(str(folder))
    if beside:
        _travel_by_value(module)
    return module


def _travel_by_value(module: ModuleType) -> None:
    """Let the workers of a cluster get the code itself, since they cannot import it."""
    with suppress(ImportError):
        import cloudpickle

        for own in _around(module):
            cloudpickle.register_pickle_by_value(own)


def _around(module: ModuleType) -> list[ModuleType]:
    """The module, and the imported modules of the same package or the same folder."""
    own, top = _home(module), module.__name__.partition(".")[0]
    installed = own is None or own.name in ("site-packages", "dist-packages")
    others = [other for name, other in sys.modules.items() if name.partition(".")[0] == top or (not installed and _home(other) == own)]
    return [
        module,
        *(other for other in others if other is not module and other.__name__.partition(".")[0] not in ("__main__", "mebandit")),
    ]


def _home(module: ModuleType) -> Path | None:
    """The folder that holds the module, or the package that it is of."""
    top = _file(sys.modules.get(module.__name__.partition(".")[0], module))
    if not top.is_file():
        return None
    return top.parent.parent if top.name == "__init__.py" else top.parent


def _file(module: ModuleType) -> Path:
    return Path(getattr(module, "__file__", None) or "/").resolve()


def _sources(module: ModuleType) -> Iterable[Path]:
    """The files of the module and of those around it, sorted."""
    return sorted({_file(own) for own in _around(module) if _file(own).is_file()})


def _checksum(files: Iterable[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.name.encode() + b"\0" + file.read_bytes() for file in files)).hexdigest()
