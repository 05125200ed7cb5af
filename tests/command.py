"""The command `mebandit` in a process of its own, as a user runs it, but without the second that importing takes.

A process that has imported the command waits for requests, and forks for each: what runs is a process with its own folder, streams and exit
status. What the tests of the command say about processes (signals, closed pipes, other environments) they start themselves.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run(["mebandit", *arguments])` gives."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        waiting = _started()
        assert waiting.stdin is not None
        assert waiting.stdout is not None
        waiting.stdin.write(json.dumps([arguments, str(cwd), dict(os.environ), str(out), str(err)]) + "\n")
        waiting.stdin.flush()
        return subprocess.CompletedProcess(arguments, int(waiting.stdout.readline()), out.read_text(), err.read_text())


@cache
def _started() -> "subprocess.Popen[str]":
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", "from tests.command import _serve; _serve()"]
    started = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(started.communicate)  # it ends with its input
    return started


def _serve() -> None:
    """Run a command for each line of standard input, and say how it ended."""
    import pyarrow.parquet  # noqa: F401  what most commands import

    from mebandit.cli import main

    for line in sys.stdin:
        arguments, folder, environment, out, err = json.loads(line)
        child = os.fork()
        if child == 0:
            for number, path in enumerate((os.devnull, out, err)):
                os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
            os.environ.update(environment)
            os.chdir(folder)
            sys.argv = ["mebandit", *arguments]
            os._exit(_status(main))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _status(main: Callable[[], object]) -> int:
    """The exit status that Python gives a program: 0, the number in `sys.exit`, or 1 after words on standard error."""
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status
