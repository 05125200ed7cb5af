"""Files that are there in full or not at all."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mebandit.checks import LogError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file under another name, then rename it: it is there in full or not at all."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def writable_folder(path: str | Path) -> Path:
    """The folder, made if need be and found writable; or one sentence, before any computing."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".mebandit-write-test"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise LogError(f"the output folder must be writable; got {folder} ({error.strerror}).") from error
    return folder


@contextmanager
def folder_for_results(path: Path | None, inputs: Iterable[Path], names: Iterable[str]) -> Iterator[Path | None]:
    """A writable folder, if one is wanted; where nothing comes of what is done with it, those made for it are taken away again.

    Results of these names must not take the place of an input, nor lie in a folder that is one, where they would be read the next time."""
    if path is None:
        yield None
        return
    for given in inputs:
        if given.is_dir() and (path.resolve() == given.resolve() or given.resolve() in path.resolve().parents):
            raise LogError(f"the output folder must be outside the folder that is read; got {path} in {given}.")
        if any((path / name).exists() and given.exists() and (path / name).samefile(given) for name in names):
            raise LogError(
                f"the output folder must be another one, where results do not take the place of the log; got {path} for {given}."
            )
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield writable_folder(path)
    finally:
        with suppress(OSError):  # the first that is not empty ends it
            for folder in made:
                folder.rmdir()


def begins_with(mark: str) -> Callable[[Path], bool]:
    """Whether a file has a mark at its beginning."""

    def has(path: Path) -> bool:
        try:
            with path.open("rb") as file:
                return mark.encode() in file.read(80)
        except OSError:
            return False

    return has


def check_output(path: str | Path, inputs: Iterable[object], ours: Callable[[Path], bool]) -> None:
    """Refuse to write over what is being read, over what is not `ours` to replace, or where nothing can be written; before computing."""
    target = Path(path)
    for given in inputs:
        if isinstance(given, (str, Path)) and target.exists() and Path(given).exists() and target.samefile(given):
            raise LogError(f"the file to write must be another one than what is read; got {path} for both.")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise LogError(f"the file to write must be in a folder that can be written to; got {path}.")
    if target.is_dir() or (target.is_file() and target.stat().st_size and not ours(target)):
        remedy = "Name another, or take that one away first."
        raise LogError(f"the file to write must be new, or an earlier one of its kind; got {path}, which holds something else. {remedy}")
