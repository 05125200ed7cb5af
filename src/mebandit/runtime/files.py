"""Files that are written in full or not at all, JSON with a checksum, and checks of paths before anything is computed."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

from mebandit import checks
from mebandit.checks import LogError

DEEPEST = 100
"""levels of nested lists and tables that a file may have"""


@contextmanager
def whole_file(path: str | Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write to. It replaces `path` once all is written; if anything fails, `path` is unchanged.

    `durable=False` does not wait for the disk: after a power failure, the file may be damaged.

    The file is written under a random name first, so that two processes never write to the same file. Links are not followed: a link at
    `path` is replaced by the file.
    """
    path = checks.path("the file to write", path)
    part = path.with_name(f".mebandit-{token_hex(8)}.part")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            with open(handle, "wb") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
    except OSError as error:
        checks.refuse("the file to write", "be one that can be written", f"{path} ({error.strerror or error})", error=LogError)


def write_whole(path: str | Path, content: str | bytes, *, durable: bool = True) -> None:
    """Write a file in full or not at all, see `whole_file`."""
    with whole_file(path, durable=durable) as file:
        file.write(_bytes(content))


def write_together(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    """Write several files to a folder, all of them or none. They get their names once all are on disk.

    Args:
        folder: An existing folder.
        contents: The contents by file name.
    """
    with ExitStack() as stack:
        for name, content in contents.items():
            file = stack.enter_context(whole_file(folder / name))
            file.write(_bytes(content))
            file.flush()
            os.fsync(file.fileno())


def _bytes(content: str | bytes) -> bytes:
    """Text as UTF-8. File names that are not UTF-8 may be part of it, and are written as escape codes."""
    return content.encode(errors="backslashreplace") if isinstance(content, str) else content


def parse_json(content: str | bytes) -> Any:
    """The contents of a JSON text. A ValueError says that it is not JSON, or that it is nested too deeply."""
    found = _shallow(lambda: json.loads(content))
    brackets = ("[", "{") if isinstance(content, str) else (b"[", b"{")
    if sum(map(content.count, brackets)) > DEEPEST:  # type: ignore[arg-type]
        _check_depth(found)
    return found


def parse_toml(content: bytes) -> dict[str, Any]:
    """The contents of a TOML text. A ValueError says that it is not TOML, or that it is nested too deeply."""
    import tomllib

    found: dict[str, Any] = _shallow(lambda: tomllib.loads(content.decode()))
    _check_depth(found)
    return found


def _shallow(parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _check_depth(value: Any) -> None:
    """Raise a ValueError if a value is nested so deeply that printing it could end in a RecursionError."""
    level = [value]
    for _ in range(DEEPEST):
        inside = (inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer))
        level = [inner for inner in inside if isinstance(inner, (dict, list))]
        if not level:
            return
    raise ValueError("nested too deeply")


def seal(body: dict[str, Any]) -> str:
    """A dict as JSON, with a checksum of its other entries as the last entry."""
    return json.dumps(body | {"sha256": _checksum(body)}, allow_nan=False)


def unseal(content: str | bytes) -> tuple[dict[str, Any], bool]:
    """The dict that `seal` wrote, and whether its checksum is right. A ValueError says that there is no checksum."""
    body = parse_json(content)
    if not isinstance(body, dict) or "sha256" not in body:
        raise ValueError("no checksum")
    found = body.pop("sha256")
    return body, found == _checksum(body)


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, allow_nan=False).encode()).hexdigest()


def writable_folder(path: str | Path) -> Path:
    """A folder that can be written to; it is made if it does not exist. Call this before computing anything."""
    folder = checks.path("the output folder", path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".mebandit-{token_hex(8)}.part"
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        probe.unlink()
    except OSError as error:
        checks.refuse("the output folder", "be writable", f"{folder} ({error.strerror})", error=LogError)
    return folder


@contextmanager
def folder_for_results(path: Path | None, inputs: Iterable[Path], names: Iterable[str]) -> Iterator[Path | None]:
    """A writable folder for results, or None if `path` is None. If nothing is written to a folder that was made here, it is removed.

    Refuses results that would overwrite an input, or that would lie in a folder of inputs and be read with them the next time.

    Args:
        path: The folder.
        inputs: Files and folders that are read.
        names: The names of the files that will be written.
    """
    if path is None:
        yield None
        return
    for given in inputs:
        if given.is_dir() and (path.resolve() == given.resolve() or given.resolve() in path.resolve().parents):
            checks.refuse("the output folder", "be outside the folder that is read", f"{path} in {given}", error=LogError)
        if any((path / name).exists() and given.exists() and (path / name).samefile(given) for name in names):
            rule = "be another one, where results do not take the place of the log"
            checks.refuse("the output folder", rule, f"{path} for {given}", error=LogError)
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield writable_folder(path)
    finally:
        with suppress(OSError):  # the first that is not empty ends it
            for folder in made:
                folder.rmdir()


def begins_with(mark: str) -> Callable[[Path], bool]:
    """A function that says whether a file has `mark` in its first 80 bytes."""

    def has(path: Path) -> bool:
        try:
            with path.open("rb") as file:
                return mark.encode() in file.read(80)
        except OSError:
            return False

    return has


def check_output(path: str | Path, inputs: Iterable[object], ours: Callable[[Path], bool]) -> None:
    """Refuse an output file that cannot or should not be written. Call this before computing anything.

    Args:
        path: The output file. It must not be an input, and its folder must be writable.
        inputs: The files that are read.
        ours: Says of an existing file whether it may be replaced.
    """
    target = checks.path("the file to write", path)
    for given in inputs:
        if isinstance(given, (str, Path)) and target.exists() and Path(given).exists() and target.samefile(given):
            checks.refuse("the file to write", "be another one than what is read", f"{path} for both", error=LogError)
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        checks.refuse("the file to write", "be in a folder that can be written to", path, error=LogError)
    if target.is_dir() or (target.is_file() and target.stat().st_size and not ours(target)):
        remedy = "Name another file, or remove this one first."
        rule = "be new, or an earlier one of its kind"
        checks.refuse("the file to write", rule, f"{path}, which holds something else", remedy, error=LogError)
