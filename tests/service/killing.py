"""Kills servers at random moments while clients decide and report, and compares what was answered with what is stored."""

import json
import random
import threading
import time
from math import inf
from typing import Any, NamedTuple

from sqlalchemy import func, select

from mebandit.client import Client, Refused, Unreachable
from mebandit.service.replay import Replayed, replay
from mebandit.service.store.database import Database, all_rows
from mebandit.service.store.schema import decision, outcome
from tests.service.servers import KEY, WALK, Launcher, Server, begin, free_port, kill_postgresql

PATIENCE = 120.0
"""seconds after which a client of these tests gives up"""


class Killed(NamedTuple):
    """What came of it."""

    decisions: int
    """acknowledged"""
    outcomes: int
    """acknowledged"""
    retried: int
    """answers that had been stored before the reply was lost"""
    faults: list[str]
    """acknowledged things that are missing or otherwise in the store"""
    replayed: Replayed
    kills: int = 0
    of_database: int = 0
    """kills of the database itself"""


class Acknowledged:
    """A client that decides and reports until it is stopped, and notes what was acknowledged."""

    def __init__(self, number: int, ports: list[int], ending: threading.Event) -> None:
        self.number, self.ending = number, ending
        self.clients = [Client(f"http://127.0.0.1:{port}", "walk", key=KEY, timeout=0.5) for port in ports]
        self.decisions: dict[str, dict[str, Any]] = {}
        self.outcomes: dict[str, float] = {}
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        drawn = random.Random(self.number)
        i = 0
        while not self.ending.is_set():
            name, i = f"c{self.number}-{i}", i + 1
            context = {"stress": round(drawn.random(), 6)}
            self.decisions[name] = self.insist(lambda client, name=name, context=context: client.decide(name, context))
            if drawn.random() < 0.7:
                value = drawn.gauss(0.0, 1.0)
                self.insist(lambda client, name=name, value=value: client.report(name, value))
                self.outcomes[name] = value

    def insist(self, call: Any) -> Any:
        """Ask one server after the other until one answers."""
        end = time.monotonic() + PATIENCE
        while True:
            for client in self.clients:
                try:
                    return call(client)
                except Unreachable:
                    if time.monotonic() > end:
                        raise

    def end(self) -> None:
        self.thread.join()
        for client in self.clients:
            client.close()


def kill_again(
    launcher: Launcher,
    store: str,
    *,
    kills: int,
    servers: int = 1,
    database: Any = None,
    clients: int = 8,
    seed: int = 0,
    wait: float = 0.3,
    minutes: float = inf,
) -> Killed:
    """Kill servers of a store, or the database itself, start them again, and compare.

    Args:
        launcher: starts servers.
        store: where they store.
        kills: how often a server is killed.
        servers: how many serve the store at once.
        database: a PostgreSQL server of the tests, which is killed as often as each of the servers. None: it is spared.
        clients: how many clients ask.
        seed: of the moments.
        wait: seconds that a server lives, at most, after it is ready.
        minutes: after which no more are killed.
    """
    moments = random.Random(seed)
    running = [launcher.start(store, free_port()) for _ in range(servers)]
    with running[0].client() as client:
        begin(client)
    ending = threading.Event()
    asking = [Acknowledged(k, [server.port for server in running], ending) for k in range(clients)]
    of_database, made, end = 0, 0, time.monotonic() + 60 * minutes
    while made < kills and time.monotonic() < end:
        made += 1
        time.sleep(moments.uniform(0.0, wait))
        victim = moments.randrange(servers + (database is not None))
        if victim == servers:
            kill_postgresql(database)
            of_database += 1
            continue
        running[victim].kill()
        running[victim] = launcher.start(store, running[victim].port)
    ending.set()
    for each in asking:
        each.end()
    finish(running)
    return compared(store, asking)._replace(kills=made, of_database=of_database)


def finish(running: list[Server]) -> None:
    """Learn what waits, and end."""
    with running[0].client() as client:
        for _ in range(100):
            client.post("/v1/experiments/walk/train")
            verdicts = client.post("/v1/experiments/walk/checks:run").json().get("checks", [])
            if [each["values"]["waiting"] for each in verdicts if each["name"] == "learning"] == [[0.0]]:
                break
            time.sleep(0.2)
    for server in running:
        server.kill()


def compared(store: str, asking: list[Acknowledged]) -> Killed:
    database = Database(store)
    with database.read() as connection:
        rows = all_rows(connection, select(decision))
        made = {row["name"]: row for row in rows}
        told = {row["decision"]: row["value"] for row in all_rows(connection, select(outcome))}
        twice = connection.execute(select(func.count()).select_from(decision)).scalar_one() - len(made)
    faults = [f"{twice} decisions are stored twice"] if twice else []
    for each in asking:
        for name, answer in each.decisions.items():
            if name not in made or shown(made[name]) != (answer["action"], answer["probabilities"], answer["mode"], answer["version"]):
                faults.append(f"decision {name}: {answer} was answered, {made.get(name)} is stored")
        faults += [
            f"outcome of {name}: {value}, {told.get(name)} stored" for name, value in each.outcomes.items() if told.get(name) != value
        ]
    found = replay(database)
    database.close()
    answers = [answer for each in asking for answer in each.decisions.values()]
    retried = sum(answer["replayed"] for answer in answers)
    return Killed(len(answers), sum(len(each.outcomes) for each in asking), retried, faults, found)


def shown(row: Any) -> tuple[Any, ...]:
    actions = WALK["actions"]
    return actions[row["action"]], dict(zip(actions, json.loads(row["propensities"]), strict=True)), row["mode"], row["version"]


class Repeated(NamedTuple):
    """What came of requests that are sent several times."""

    requests: int
    decisions: int
    alike: bool
    """whether all answers to one name are the same"""
    new: int
    """answers that are not marked as replayed"""
    refused: int
    """of the requests with another body, those answered 409"""
    others: int
    """requests with another body"""


def repeat(store: str, ports: list[int], *, names: int, clients: int = 8, seed: int = 0) -> Repeated:
    """Send each of many requests one to four times, all at once, and some with another body."""
    drawn = random.Random(seed)
    sent = [(f"r{i}", {"stress": i / names}) for i in range(names) for _ in range(drawn.randint(1, 4))]
    drawn.shuffle(sent)
    parts, answers, refusals = [sent[k::clients] for k in range(clients)], [], []
    errors: list[Exception] = []

    def ask(part: list[tuple[str, dict[str, float]]], k: int) -> None:
        try:
            ask_all(part, k)
        except Exception as error:
            errors.append(error)

    def ask_all(part: list[tuple[str, dict[str, float]]], k: int) -> None:
        with Client(f"http://127.0.0.1:{ports[k % len(ports)]}", "walk", key=KEY, timeout=PATIENCE) as client:
            send(client, part)

    def send(client: Client, part: list[tuple[str, dict[str, float]]]) -> None:
        for i, (name, context) in enumerate(part):
            answers.append(client.decide(name, context))
            if i % 10 == 0:
                try:
                    client.decide(name, {"stress": 0.123456})
                except Refused as error:
                    refusals.append(error.status)

    threads = [threading.Thread(target=ask, args=(part, k)) for k, part in enumerate(parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    by_name: dict[str, set[str]] = {}
    for answer in answers:
        by_name.setdefault(answer["decision"], set()).add(json.dumps(answer | {"replayed": None}, sort_keys=True))
    new = sum(not answer["replayed"] for answer in answers)
    alike = all(len(each) == 1 for each in by_name.values())
    others = sum(len(range(0, len(part), 10)) for part in parts)
    return Repeated(len(sent), len(by_name), alike, new, refusals.count(409), others)
