"""Many machines: a real scheduler and real worker processes, one of which is killed, and the same results bit for bit."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

import mebandit as mb
from mebandit.experiments.paper.examples import ThresholdCell
from mebandit.experiments.runner import run_cells
from mebandit.policies import Policy
from mebandit.runtime import workers
from mebandit.runtime.workers import Cluster, Threads

ROOT = Path(__file__).parents[2]
SPEC = """
[simulation]
horizon = 5000
replicates = 12
seed = 3

[environment]
kind = "Gaussian"

[grid]
error_cov = [0.1, 1.0]

[[policy]]
kind = "meb"

[[policy]]
kind = "thompson"
"""


class Machines:
    """A scheduler and its workers, each a process of its own on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        known = folder / "scheduler.json"
        self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(known))
        while not known.exists() or not known.read_text():
            time.sleep(0.02)
        self.address = str(json.loads(known.read_text())["address"])

    def _start(self, what: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{what}", "--no-dashboard", *arguments]
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=os.environ | environment, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def worker(self, **environment: str) -> subprocess.Popen[bytes]:
        """One more worker of one thread, at work: without a nanny, nothing starts it again when it is killed."""
        name = f"worker-{len(self.processes)}"
        found = self._start("dask_worker", self.address, "--nthreads", "1", "--no-nanny", "--name", name, **environment)
        with self.client() as client:
            while name not in {worker["name"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()}:
                time.sleep(0.02)
        return found

    def client(self) -> Client:
        return Client(self.address, set_as_default=False)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """A scheduler without workers."""
    found = Machines(tmp_path)
    yield found
    found.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A scheduler with one worker, for tests that leave them as they were."""
    found = Machines(tmp_path_factory.mktemp("cluster"))
    found.worker()
    yield found
    found.end()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mebandit", *arguments]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=cwd, capture_output=True, text=True, check=False)


def log(folder: Path) -> Path:
    """A folder of three Parquet files with small row groups."""
    rng = np.random.default_rng(5)
    for file in range(3):
        n = 20_000
        x, action, p = rng.normal(1, 1, (n, 2)), rng.integers(0, 2, n), np.full(n, 0.5)
        columns = {"x0": x[:, 0] + rng.normal(0, 0.5, n), "x1": x[:, 1], "action": action, "propensity": p}
        reward = np.where(action == 1, x[:, 0], x[:, 1]) + rng.normal(0, 0.1, n)
        table = pa.table(columns | {"reward": reward, "who": rng.integers(0, 40, n)})
        (folder / "log").mkdir(exist_ok=True)
        pq.write_table(table, folder / "log" / f"{file}.parquet", row_group_size=3000)
    return folder / "log"


def test_a_killed_worker_changes_no_bit_of_a_simulation(machines: Machines, tmp_path: Path) -> None:
    """One of two workers is stopped while it has work, and killed when the other has done some."""
    (tmp_path / "spec.toml").write_text(SPEC)
    victim, _ = machines.worker(), machines.worker()
    with (tmp_path / "errors").open("w") as errors:
        arguments = command("simulate", "spec.toml", "--out", "cluster", "--scheduler", machines.address)
        process = subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=errors)
    with machines.client() as client:
        known = client.scheduler_info(n_workers=-1)["workers"].items()
        (address,) = (address for address, worker in known if worker["name"] == "worker-1")

        def held() -> bool:
            """Whether the victim has work that is not done."""
            return bool(client.processing().get(address))

        def finished() -> int:
            return int(client.run_on_scheduler(lambda dask_scheduler: sum(t.state == "memory" for t in dask_scheduler.tasks.values())))

        while process.poll() is None and not (held() and finished()):
            victim.send_signal(signal.SIGCONT)
            while process.poll() is None and not held():
                time.sleep(0.005)
            victim.send_signal(signal.SIGSTOP)  # so that it is still at work when others have done some
            time.sleep(0.2)
        assert process.poll() is None, "the kill comes in the middle: some tasks are done, one of the victim's is not"
        victim.kill()
        victim.wait()
    assert process.wait() == 0, (tmp_path / "errors").read_text()
    assert run("simulate", "spec.toml", "--out", "alone", cwd=tmp_path).returncode == 0
    written = sorted(path.relative_to(tmp_path / "alone") for path in (tmp_path / "alone").rglob("*.csv"))
    assert len(written) == 2 * 2 + 2
    for path in written:
        assert (tmp_path / "alone" / path).read_bytes() == (tmp_path / "cluster" / path).read_bytes(), path


def test_a_cluster_gives_what_threads_give(cluster: Machines, tmp_path: Path) -> None:
    """Simulations, the paper, fits and values, from Python and the command line; a policy of one's own travels too."""

    class Own:
        n_actions, dim, name = 2, 5, "own"

        def init(self) -> tuple[float]:
            return (0.0,)

        def propensities(self, state: tuple[float], observation: mb.Observation) -> np.ndarray:
            return np.array([0.5, 0.5])

        def update(self, state: tuple[float], round: mb.Round) -> tuple[float]:
            return (state[0] + round.reward,)

    world = mb.environments.Gaussian()
    policies: dict[str, Policy] = {"ours": mb.meb_dr(2, 5), "own": Own()}
    counts: list[tuple[int, int]] = []
    far = mb.simulate(world, policies, horizon=300, replicates=30, workers=cluster.address, progress=lambda *done: counts.append(done))
    near = mb.simulate(world, policies, horizon=300, replicates=30, workers=1)
    for field in ("standard_regret", "clipped_regret", "estimation_error", "guarded_fits"):
        np.testing.assert_array_equal(getattr(far, field), getattr(near, field))
    assert counts == [(i, 30) for i in range(1, 31)]

    given = {"predicted": "x0,x1", "error_cov": [0.25, 0.0], "unit": "who"}
    folder = log(tmp_path)
    with cluster.client() as client:
        found = mb.fit(folder, **given, workers=client)  # type: ignore[arg-type]
        assert client.status == "running", "a client that was given is left open"
        value = mb.value(folder, "uniform", predicted="x0,x1", workers=client)
    assert found.to_json() == mb.fit(folder, **given, workers=3).to_json()  # type: ignore[arg-type]
    assert repr(value) == repr(mb.value(folder, "uniform", predicted="x0,x1"))

    options = ["fit", "log", "--predicted", "x0,x1", "--error-cov", "0.25,0", "--json"]
    assert run(*options, "--scheduler", cluster.address, cwd=tmp_path).stdout == run(*options, cwd=tmp_path).stdout

    cells = [ThresholdCell(rho, replicates=5, seed=1, horizon=500) for rho in (0.0, 0.5)]
    far_data, near_data = run_cells(cells, tmp_path / "far", workers=cluster.address), run_cells(cells, tmp_path / "near")
    assert far_data.curves.equals(near_data.curves)
    assert far_data.replicates.equals(near_data.replicates)


def tasks(client: Client) -> int:
    return int(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))


def test_an_interruption_ends_the_command_with_one_sentence(cluster: Machines, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC.replace("replicates = 12", "replicates = 1000"))
    arguments = command("simulate", "spec.toml", "--scheduler", cluster.address)
    process = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    with cluster.client() as client:
        while process.poll() is None and tasks(client) == 0:
            time.sleep(0.01)
        time.sleep(0.5)  # until all tasks are out: interrupted while it makes one, Dask itself prints a traceback
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert errors.strip().splitlines()[-1].startswith("mebandit: interrupted;")
        assert "Traceback" not in errors


def test_an_interruption_takes_the_tasks_back(cluster: Machines) -> None:
    """Also where the client lives on, and somebody (here: pytest) holds on to the frames that know the tasks."""

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with cluster.client() as client:
        with pytest.raises(KeyboardInterrupt):
            mb.simulate(mb.environments.Gaussian(), [mb.meb(2, 5)], horizon=100_000, replicates=100, workers=client, progress=interrupt)
        for _ in range(500):
            if tasks(client) == 0:
                break
            time.sleep(0.01)
        assert tasks(client) == 0


def test_an_address_without_a_scheduler_is_refused_in_one_sentence(
    cluster: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = run("paper", "examples", "--scheduler", nobody, cwd=tmp_path)
        rule = "scheduler must be the address of a running Dask scheduler, such as tcp://host:8786"
        assert done.returncode == 1
        assert done.stderr.startswith(f"mebandit: --{rule}; got '{nobody}', none that answers within 5 s.")
        assert len(done.stderr.splitlines()) == 1
        monkeypatch.setattr(workers, "PATIENCE", 0.5)
        with pytest.raises(mb.ClusterError, match=r"none that answers within 0\.5 s"):
            mb.simulate(mb.environments.Gaussian(), [mb.meb(2, 5)], horizon=10, workers=nobody)
    log(tmp_path)
    for address in ("nonsense", "gopher://here"):
        with pytest.raises(mb.ClusterError, match=f"got '{address}', none"):
            mb.fit(tmp_path / "log", predicted="x0,x1", error_cov=0, workers=address)
    with cluster.client() as client:
        (worker,) = client.nthreads()
    with pytest.raises(mb.ClusterError, match="that of a Worker"):
        mb.simulate(mb.environments.Gaussian(), [mb.meb(2, 5)], horizon=10, workers=worker)


@pytest.mark.parametrize(("version", "got"), [("0.0.9", "mebandit 0.0.9"), (None, "none")])
def test_workers_with_another_version_or_none_are_refused(machines: Machines, tmp_path: Path, version: str | None, got: str) -> None:
    other = tmp_path / "other"
    if version is None:
        other.mkdir()
        source = f"import sys\nsys.path[:] = [entry for entry in sys.path if entry != {str(ROOT / 'src')!r}]\n"
        (other / "sitecustomize.py").write_text(source)
    else:
        (other / "mebandit").mkdir(parents=True)
        (other / "mebandit" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    machines.worker(PYTHONPATH=str(other))
    with pytest.raises(mb.ClusterError, match=rf"^the workers of the cluster must have mebandit {mb.__version__}, as here; got {got} on "):
        mb.simulate(mb.environments.Gaussian(), [mb.meb(2, 5)], horizon=10, workers=machines.address)


def test_workers_that_do_not_see_the_log_say_so(cluster: Machines, tmp_path: Path) -> None:
    """Files that are gone, or others, when a worker comes to read them: made so after the pieces were cut."""
    file = log(tmp_path) / "0.parquet"
    spoilt = {"one of 0 bytes": lambda: file.write_bytes(b""), "none there": lambda: file.unlink(missing_ok=True)}
    for got, spoil in spoilt.items():
        log(tmp_path)
        with pytest.raises(
            mb.LogError, match=rf"0.parquet must be the same file of [\d,]+ bytes on every machine that reads it; got {got} on .*share\.$"
        ):
            mb.fit(file, predicted="x0,x1", error_cov=0, workers=cluster.address, progress=lambda *_, spoil=spoil: spoil())
    table = {"x0": [1.0, 2.0], "action": [0, 1], "reward": [0.0, 1.0], "propensity": [0.5, 0.5]}
    with pytest.raises(mb.InvalidInput, match="a log that a cluster reads must be Parquet files; got the table"):
        mb.fit(table, predicted="x0", error_cov=0, workers=cluster.address)


def test_workers_are_named_once_and_well(tmp_path: Path) -> None:
    log(tmp_path)
    done = run("fit", "log", "--predicted", "x0,x1", "--error-cov", "0", "--workers", "2", "--scheduler", "tcp://x:1", cwd=tmp_path)
    assert done.stderr.startswith("mebandit: the workers must be named once; got both --workers")
    for wrong in (0, -1, 2.0, True, [1]):
        with pytest.raises(mb.InvalidInput, match="workers must be a number of threads of at least 1, the address of a Dask scheduler"):
            mb.simulate(mb.environments.Gaussian(), [mb.meb(2, 5)], horizon=10, workers=wrong)


@pytest.mark.parametrize("number", [1, 3])
def test_threads_give_results_in_order_and_pass_errors_on(number: int) -> None:
    finished: list[int] = []
    with Threads(number) as pool:
        assert list(pool.in_order(lambda i: i * i, range(20), lambda: finished.append(1))) == [i * i for i in range(20)]
        assert len(finished) == 20
        with pytest.raises(ZeroDivisionError):
            list(pool.in_order(lambda i: 1 / (3 - i), range(20), lambda: None))


def test_a_task_is_some_seconds_of_work_and_a_bounded_result() -> None:
    small, large = np.zeros(10), np.zeros(1 << 20)  # 8 MiB
    for seconds, results, left, size in (
        (0.5, [small] * 5, 1000, 20),  # a tenth of a second each
        (0.5, [small] * 5, 80, 10),  # eight threads share what is left
        (0.5, [small] * 5, 3, 1),
        (0.5, [small] * 5, 0, 20),  # nobody knows how much is left
        (9.0, [small], 1000, 1),
        (0.5, [large] * 5, 1000, 3),  # more would not fit
    ):
        assert workers._group_size(workers._share(seconds, results), left, threads=8) == size


def test_few_tasks_are_on_their_way_at_a_time(cluster: Machines) -> None:
    """Neither the scheduler's memory nor a worker's grows with the work: pieces are taken as results come back."""
    taken = []

    def pieces() -> Iterator[int]:
        for i in range(1000):
            taken.append(i)
            yield i

    with cluster.client() as client, Cluster(client, own=False) as pool:
        results = pool.in_order(lambda i: time.sleep(0.25) or i, pieces(), lambda: None)  # type: ignore[func-returns-value]
        assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
        assert len(taken) < 100
