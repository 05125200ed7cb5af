"""Kill servers of the decision service again and again, and repeat requests, and print what was lost.

python scripts/kill_service.py --kills 1000                          SQLite, one server
python scripts/kill_service.py --kills 1000 --postgresql             PostgreSQL, two servers and the database itself
python scripts/kill_service.py --requests 10000 --postgresql         requests sent one to four times, by two servers

"""

import argparse
import sys
import tempfile
import time
from math import inf
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.service.killing import kill_again, repeat
from tests.service.servers import Launcher, begin, free_port, postgresql

from mebandit.service.replay import replay
from mebandit.service.store.database import Database


def main() -> None:
    """Run what the options say."""
    parser = argparse.ArgumentParser(description="Kill servers of the decision service.")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=inf, help="after which no more are killed")
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--servers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    launcher, database, begun = Launcher(), None, time.monotonic()
    servers = options.servers or (2 if options.postgresql else 1)
    with tempfile.TemporaryDirectory(prefix="mb") as folder:
        store = f"{folder}/trial.db"
        if options.postgresql:
            database = postgresql(f"{folder}/pg")
            store = str(database.get_uri())
        try:
            where = f"{'PostgreSQL' if database else 'SQLite'}, {servers} server{'s' if servers > 1 else ''}"
            said = killed(launcher, store, options.kills, servers, options.seed, database, options.minutes) if options.kills else ""
            said = said or repeated(launcher, store, options.requests, servers, options.seed)
            print(f"{where}: {said} It took {time.monotonic() - begun:.0f} s.")
        finally:
            launcher.close()
            if database is not None:
                database.cleanup()


def killed(launcher: Launcher, store: str, kills: int, servers: int, seed: int, database: Any, minutes: float) -> str:
    """What came of some kills, in words."""
    found = kill_again(launcher, store, kills=kills, servers=servers, seed=seed, database=database, minutes=minutes)
    for fault in found.faults[:20]:
        print(fault)
    again, of_database = found.replayed, f" ({found.of_database:,} of the database)" if database else ""
    return (
        f"{found.kills:,} kills{of_database}; {found.decisions:,} decisions and {found.outcomes:,} outcomes acknowledged, "
        f"{len(found.faults)} of them lost or changed; {found.retried:,} decisions were stored when their reply was lost, "
        f"and answered alike on a retry. Replay: "
        f"{again.decisions:,} decisions and {again.versions:,} versions of {again.rounds:,} rounds, {again.difference or 'no difference'}."
    )


def repeated(launcher: Launcher, store: str, requests: int, servers: int, seed: int) -> str:
    """What came of requests that were sent several times, in words."""
    running = [launcher.start(store, free_port()) for _ in range(servers)]
    with running[0].client() as client:
        begin(client)
    found = repeat(store, [server.port for server in running], names=requests, seed=seed)
    for server in running:
        server.kill()
    database = Database(store)
    again = replay(database)
    database.close()
    return (
        f"{requests:,} requests sent {found.requests:,} times by 8 clients; {found.new:,} decisions, all answers to one name "
        f"{'alike' if found.alike else 'NOT alike'}; {found.refused:,} of {found.others:,} requests with another body refused with 409. "
        f"Replay: {again.decisions:,} decisions, {again.difference or 'no difference'}."
    )


if __name__ == "__main__":
    main()
