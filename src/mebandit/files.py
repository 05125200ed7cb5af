"""Files that are there in full or not at all."""

import os
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
