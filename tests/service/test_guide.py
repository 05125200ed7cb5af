"""The guide of the service: its commands and programs run, one after the other, against one server."""

import os
import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

from tests.service.servers import KEY, Server

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "service.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.skipif(which("curl") is None, reason="there is no curl")
def test_the_programs_of_the_guide_run(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = os.environ | {"MEBANDIT_API_KEY": KEY}
    commands = "\n".join(block for block in blocks("sh") if "curl" in block).replace("curl -s", "curl -sf")
    commands = "set -e\n" + commands.replace("http://127.0.0.1:8000", server.address)
    said = subprocess.run(["sh", "-c", commands], env=environment, capture_output=True, text=True, check=True).stdout
    assert '"mode": "warmup"' in said
    assert '"status": "stored"' in said
    for program in blocks("py"):
        exec(compile(program.replace("http://127.0.0.1:8000", server.address), "service.md", "exec"), {"KEY": KEY})
    assert capsys.readouterr().out.split() == blocks("text")[0].split()
    if which("node") is not None:
        program = f"(async () => {{ {blocks('ts')[0]} }})()".replace("http://127.0.0.1:8000", server.address)
        assert subprocess.run(["node", "-e", program], env=environment, capture_output=True, text=True, check=True).stdout == "warmup\n"
    if (
        which("Rscript") is not None
        and subprocess.run(["Rscript", "-e", "library(httr2); library(jsonlite)"], capture_output=True).returncode == 0
    ):
        program = f"found <- {{ {blocks('r')[0]} }}\ncat(found$mode)".replace("http://127.0.0.1:8000", server.address)
        assert subprocess.run(["Rscript", "-e", program], env=environment, capture_output=True, text=True, check=True).stdout == "warmup"
