"""`mebandit serve`, `mebandit replay`, and the demonstration of the service."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mebandit import checks
from mebandit.cli.terminal import commands, print_table

if TYPE_CHECKING:
    from mebandit.service.store.database import Database

STORE = click.option(
    "--store",
    default="mebandit.db",
    show_default=True,
    help="SQLite file, which is made if there is none, or the address of a PostgreSQL database (postgresql://...).",
)


@commands.command()
@STORE
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on. 0.0.0.0: every address of this machine.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen on.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes. More than one need PostgreSQL.")
@click.option("--check", is_flag=True, help="Check the store, which no service should be using, and end.")
def serve(store: str, host: str, port: int, workers: int, check: bool) -> None:
    """Serve decisions over HTTP.

    Every decision and every outcome is on disk before it is answered. A store without keys gets an operator's key, which is printed once;
    the environment variable MEBANDIT_API_KEY sets it instead. The description of all calls is at /docs.

    \b
      mebandit serve
      mebandit serve --store postgresql://user:password@host/trial --workers 4
    """
    database = opened(store)
    try:
        if check:
            _print_faults(database)
            return
        if workers > 1 and not database.is_postgresql:
            remedy = "Give --store the address of a PostgreSQL database."
            checks.refuse("workers", "be 1 for a SQLite file, which has one writer", workers, remedy)
        _print_start(database, f"http://{host}:{port}")
    finally:
        database.close()
    import uvicorn

    from mebandit.service.app.create import STORE as NAME

    os.environ[NAME] = store
    uvicorn.run(
        "mebandit.service.app.create:create", factory=True, host=host, port=port, workers=workers, log_level="warning", access_log=False
    )


@commands.command()
@STORE
def replay(store: str) -> None:
    """Prove the decisions of a store.

    Every decision is computed again from its request, and every version from the outcomes in the order in which they were learned. All bits
    must be the same. The first row that differs is named, and the exit status is then 1.
    """
    from mebandit.service.replay import replay as replayed

    database = opened(store)
    try:
        found = replayed(database)
    finally:
        database.close()
    print_table("Replayed", list(found._fields[1:]), [[f"{n:,}" for n in found[1:]]], set())
    if found.difference:
        sys.exit(f"mebandit: {found.difference}")
    click.echo("Every decision and every version is as it was computed again.")


def serve_demo(folder: Path, *, seed: int, port: int) -> None:
    """Make a store with a simulated trial, serve it, and let the trial go on until the server is stopped."""
    check_installed()
    from mebandit.experiments.living_demo import Living, make_store
    from mebandit.service.app.create import KEY, create
    from mebandit.service.service import new_key

    store = folder / "trial.db"
    if store.exists():
        checks.refuse(
            "out", "be a folder without a trial.db", str(folder), "Give --out another folder, or serve it: mebandit serve --store."
        )
    click.echo("Simulating three weeks of a trial, about a minute ...")
    make_store(store, seed=seed)
    key = os.environ.setdefault(KEY, new_key())
    import uvicorn

    address = f"http://127.0.0.1:{port}"
    click.echo(f"Dashboard: {address}/dashboard\nKey to sign in: {key}\nCtrl-C ends it.")
    sys.stdout.flush()
    app = Living(address, key, seed=seed)
    app.start()
    try:
        uvicorn.run(create(str(store)), host="127.0.0.1", port=port, log_level="warning", access_log=False)
    finally:
        app.stop()


def check_installed() -> None:
    """End with a sentence where the packages of the service are missing."""
    try:
        import fastapi  # noqa: F401
        import jinja2  # noqa: F401
        import prometheus_client  # noqa: F401
        import sqlalchemy  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        sys.exit("The service needs a few more packages than the command line. Install them with: pip install 'mebandit[service]'")


def opened(store: str) -> "Database":
    """The database of a store, if the packages of the service are installed."""
    check_installed()
    from mebandit.service.store.database import Database

    return Database(store)


def _print_start(database: "Database", address: str) -> None:
    """Make the first key, and say where the service is."""
    from mebandit.service.app.create import KEY
    from mebandit.service.service import first_key

    key = first_key(database, os.environ.get(KEY))
    if key is not None:
        click.echo(f"Key of the operator, shown this once: {key}")
    click.echo(f"Serving at {address} (dashboard: {address}/dashboard, description of all calls: {address}/docs)")
    sys.stdout.flush()


def _print_faults(database: "Database") -> None:
    from mebandit.service.replay import check

    faults = check(database)
    if faults:
        sys.exit("\n".join(f"mebandit: {fault}" for fault in faults))
    click.echo("The store is undamaged. To prove its decisions: mebandit replay")
