"""Starts servers as processes of their own, quickly: it imports everything once, and forks for each line that it reads.

    python launcher.py        reads lines "STORE PORT", answers each with the process id of a new server

The servers are real: they listen, and are killed with -9.
"""

import os
import signal
import sys

import uvicorn

import mebandit as mb
from mebandit.service import trainer
from mebandit.service.app.create import create


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    trainer.LEASE = 0.3  # seconds, so that trainers that are killed are replaced at once, and slow ones are overtaken
    warm = mb.Learner(mb.meb_dr(2, 2, floor=0.1))
    warm.learn(warm.decide([1.0, 0.5], 0.1), 1.0)
    for line in sys.stdin:
        store, port = line.split()
        process = os.fork()
        if process == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            uvicorn.run(create(store), host="127.0.0.1", port=int(port), log_level="critical", access_log=False)
            os._exit(0)
        print(process, flush=True)


if __name__ == "__main__":
    main()
