"""Install the package as its users do, and try what the README shows: `python scripts/check_install.py [--kinds library all lowest]`.

A wheel and a source distribution are built, and the wheel is installed into an empty environment for each kind:

    library   without extras: the library alone
    service   with the extra of the decision service
    all       with everything but GPU and developers' tools
    lowest    as `all`, with the lowest versions that pyproject.toml promises

In each, outside the checkout and with a home folder that cannot be written to, run: the examples of the README (of the library alone, the
first one), the programs in `examples/`, and the first screens of the commands. The source distribution must build the same files.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = {"library": "", "service": "[service]", "all": "[all]", "lowest": "[all]"}
QUIET = "--quiet", "--disable-pip-version-check"
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


def lowest() -> list[str]:
    """The lowest promised version of each package, as pip's constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in ("all", "dask", "service") for one in project["optional-dependencies"][extra])]
    found = [re.match(r"([a-z0-9-]+)(?:\[[a-z0-9,]+\])?>=([0-9.]+)", one) for one in wanted]
    return sorted({f"{each[1]}=={each[2]}" for each in found if each})


def built(folder: Path) -> Path:
    """The wheel, built from the checkout; and the same one from the source distribution."""
    run(sys.executable, "-m", "pip", "install", *QUIET, "--target", folder / "build", "build", "hatchling")
    environment, build = os.environ | {"PYTHONPATH": str(folder / "build")}, (sys.executable, "-m", "build", "--no-isolation")
    run(*build, "--outdir", folder / "both", ROOT, environment=environment)  # a source distribution, and the wheel from it
    run(*build, "--wheel", "--outdir", folder / "wheel", ROOT, environment=environment)
    from_sdist, wheel = next((folder / "both").glob("*.whl")), next((folder / "wheel").glob("*.whl"))
    names = [set(zipfile.ZipFile(path).namelist()) for path in (from_sdist, wheel)]
    if names[0] != names[1]:
        sys.exit(f"The source distribution must build the same files; got a difference in {sorted(names[0] ^ names[1])[:5]}.")
    return wheel


def run(*command: object, environment: dict[str, str] | None = None, folder: Path | None = None) -> None:
    """Run a command; where it fails, show what it said and end."""
    done = subprocess.run([str(part) for part in command], env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        shown = " ".join(str(part) for part in command)
        sys.exit(f"{shown[:300]}\n{done.stdout[-2000:]}{done.stderr[-4000:]}\nended with {done.returncode}.")


def tried(kind: str, wheel: Path, folder: Path) -> None:
    """Install one kind, and use it."""
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    (folder / "constraints.txt").write_text("\n".join(lowest()) if kind == "lowest" else "")
    run(python, "-m", "pip", "install", *QUIET, "--constraint", folder / "constraints.txt", f"{wheel}{EXTRAS[kind]}")
    home, work = folder / "home", folder / "work"
    home.mkdir(mode=0o500)
    work.mkdir()
    environment = {"HOME": str(home), "PATH": f"{folder / 'env' / 'bin'}:/usr/bin:/bin"}
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    whole = kind in ("all", "lowest")
    (work / "readme.py").write_text("\n".join(blocks if whole else blocks[:1]))
    run(python, "readme.py", environment=environment, folder=work)
    if whole:
        for example in sorted((ROOT / "examples").glob("*.py")):
            run(python, example, environment=environment, folder=work)
        for command in ("demo", "fit", "value", "plan", "simulate", "error-model", "serve", "replay"):
            run("mebandit", command, "--help", environment=environment, folder=work)
    elif kind == "service":
        run("mebandit", "serve", "--help", environment=environment, folder=work)
    print(f"{kind}: installed and tried", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=list(EXTRAS), default=list(EXTRAS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        wheel = built(Path(name))
        for kind in given.kinds:
            folder = Path(name) / kind
            folder.mkdir()
            tried(kind, wheel, folder)


if __name__ == "__main__":
    main()
