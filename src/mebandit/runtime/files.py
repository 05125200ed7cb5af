"""Files that are there in full or not at all, and JSON that cannot be taken for something else."""

import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

from mebandit import checks
from mebandit.checks import LogError

DEEPEST = 100
"""levels of lists and tables within each other that a file may have"""


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """A new file to write to, which takes the name `path` once all is written; if anything fails, `path` is as it was before.

    The temporary name is random and must not exist, so that two processes never write to the same file, and no link is followed: a link at
    `path` itself is replaced by the file.
    """
    path = checks.path("the file to write", path)
    part = path.with_name(f".mebandit-{token_hex(8)}.part")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            with open(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
    except OSError as error:
        checks.refuse("the file to write", "be one that can be written", f"{path} ({error.strerror or error})", error=LogError)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file in full or not at all, see `whole_file`."""
    with whole_file(path) as file:
        file.write(_bytes(content))


def write_together(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    """Write files of these names to a folder, each in full, or none of them: they take their names once the disk holds all."""
    with ExitStack() as stack:
        for name, content in contents.items():
            file = stack.enter_context(whole_file(folder / name))
            file.write(_bytes(content))
            file.flush()
            os.fsync(file.fileno())


def _bytes(content: str | bytes) -> bytes:
    """Text as UTF-8; file names that are none, as in a command that a page shows, by their codes."""
    return content.encode(errors="backslashreplace") if isinstance(content, str) else content


def parse_json(content: str | bytes) -> Any:
    """What a JSON text holds; a ValueError where it is none, also where it is nested too deeply to be worked with."""
    found = _shallow(lambda: json.loads(content))
    brackets = ("[", "{") if isinstance(content, str) else (b"[", b"{")
    if sum(map(content.count, brackets)) > DEEPEST:  # type: ignore[arg-type]
        _check_depth(found)
    return found


def parse_toml(content: bytes) -> dict[str, Any]:
    """What a TOML text holds; a ValueError likewise."""
    found: dict[str, Any] = _shallow(lambda: tomllib.loads(content.decode()))
    _check_depth(found)
    return found


def _shallow(parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _check_depth(value: Any) -> None:
    """A ValueError where printing the value, or whatever else goes through it level by level, would end in a RecursionError."""
    level = [value]
    for _ in range(DEEPEST):
        inside = (inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer))
        level = [inner for inner in inside if isinstance(inner, (dict, list))]
        if not level:
            return
    raise ValueError("nested too deeply")


def seal(body: dict[str, Any]) -> str:
    """A dict as JSON, with a checksum of the rest as its last entry."""
    return json.dumps(body | {"sha256": _checksum(body)}, allow_nan=False)


def unseal(content: str | bytes) -> tuple[dict[str, Any], bool]:
    """The dict that `seal` wrote, without its checksum, and whether that is right; a ValueError where the content has none."""
    body = parse_json(content)
    if not isinstance(body, dict) or "sha256" not in body:
        raise ValueError("no checksum")
    found = body.pop("sha256")
    return body, found == _checksum(body)


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, allow_nan=False).encode()).hexdigest()


def writable_folder(path: str | Path) -> Path:
    """The folder, made if need be and found writable; or one sentence, before any computing."""
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
    """A writable folder, if one is wanted; where nothing comes of what is done with it, those made for it are taken away again.

    Results of these names must not take the place of an input, nor lie in a folder that is one, where they would be read the next time."""
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
