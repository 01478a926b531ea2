"""The newcomer's path, run by `make build`: the wheel in an empty environment outside the checkout.

    python tests/newcomer/wheel.py WHEEL CONSTRAINTS

Installs the wheel, checks that nothing but `etl` and `connectors` came with it, runs `cuetl demo`, exports a table of
a SQLite file and reads the dataset back. Ends with 1 and a sentence at the first thing that does not hold.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CONTENTS = """
import importlib.metadata, json
files = importlib.metadata.files("cuetl")
print(json.dumps(sorted({str(f).split("/")[0] for f in files if not str(f).startswith("../")})))
"""
READ = """
import sys, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
print(table.num_rows, sum(table.column("id").to_pylist()), table.column("name").null_count)
"""
ROWS = 5000


def say(command: list[str], cwd: Path) -> str:
    """Run a command as a newcomer would, without this checkout on any path; what it printed."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main(wheel: Path, constraints: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="cuetl-newcomer-") as folder:
        home = Path(folder)
        venv.create(home / "venv", with_pip=True)
        python, cuetl = str(home / "venv/bin/python"), str(home / "venv/bin/cuetl")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        say([*install, "--constraint", str(constraints), str(wheel)], home)

        top = set(json.loads(say([python, "-c", CONTENTS], home)))
        foreign = {name for name in top if name not in ("etl", "connectors") and not name.endswith(".dist-info")}
        if foreign:
            sys.exit(f"the wheel installs more than etl and connectors: {sorted(foreign)}")

        sys.stdout.write(say([cuetl, "demo", "--to", "demo"], home))

        with sqlite3.connect(home / "own.sqlite") as connection:
            connection.execute("create table things (id integer primary key, name text)")
            rows = ((i, None if i % 10 == 0 else f"thing {i}") for i in range(ROWS))
            connection.executemany("insert into things values (?, ?)", rows)
        connection.close()
        export = [cuetl, "export", "sqlite:///own.sqlite", "--table", "things", "--to", "things", "--format", "parquet"]
        result = json.loads(say([*export, "--json"], home))
        if (result["status"], result["rows"]) != ("succeeded", ROWS):
            sys.exit(f"the export said {result}")
        said = say([python, "-c", READ, "things"], home).split()
        if said != [str(ROWS), str(ROWS * (ROWS - 1) // 2), str(ROWS // 10)]:
            sys.exit(f"the dataset holds {said}")
    sys.stdout.write(f"newcomer: {wheel.name} installs etl and connectors alone, demo and export work\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
