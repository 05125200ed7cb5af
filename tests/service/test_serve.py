"""The commands `mebandit serve` and `mebandit replay`, as processes of their own."""

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import httpx

from tests.service.servers import Server, begin, free_port


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "mebandit", *words]


def done(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(*words), capture_output=True, text=True, check=False)


def test_from_nothing_to_a_proof(tmp_path: Path) -> None:
    store, port = str(tmp_path / "trial.db"), free_port()
    environment = {name: value for name, value in os.environ.items() if name != "MEBANDIT_API_KEY"}
    process = subprocess.Popen(
        command("serve", "--store", store, "--port", str(port)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    found = re.fullmatch(r"Key of the operator, shown this once: (\S+)\n", process.stdout.readline())
    assert found is not None
    server = Server(process.pid, port, store)
    server.wait()
    with server.client(found[1]) as client:
        begin(client)
        assert client.post("/v1/experiments/walk/decisions", json={"decision": "a", "context": {"stress": 0.5}}).status_code == 200
        assert client.post("/v1/experiments/walk/outcomes", json={"outcomes": [{"decision": "a", "value": 1.0}]}).status_code == 200
        client.post("/v1/experiments/walk/train")
        assert httpx.get(f"{server.address}/openapi.json").json()["info"]["title"] == "mebandit"
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert (found[1] in out, err) == (False, "")
    assert Path(store).stat().st_mode & 0o077 == 0, "the secrets are for the owner alone"
    proved = done("replay", "--store", store)
    assert (proved.returncode, proved.stderr) == (0, "")
    assert "Every decision and every version is as it was computed again." in proved.stdout
    assert done("serve", "--check", "--store", store).stdout.startswith("The store is undamaged.")
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE decision SET action = 1 - action")
    changed = done("replay", "--store", store)
    assert changed.returncode == 1
    assert "experiment 'walk', decision 'a' must have action" in changed.stderr
    several = done("serve", "--store", store, "--workers", "2")
    assert several.returncode == 1
    assert "--workers must be 1 for a SQLite file" in several.stderr
