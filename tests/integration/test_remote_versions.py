"""Workers of somebody else's scheduler that are not like this process are refused before they get a part."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from etl.engine import probe
from tests.command import cuetl, one_paragraph
from tests.faults import until
from tests.integration.test_faults_engine import configured, dask

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgresql import PostgresDatabase


def pretending(folder: Path, **versions: str) -> str:
    """A folder that, first on a worker's path, makes its packages say other versions."""
    for name, number in versions.items():
        told = folder / f"{name}-{number}.dist-info"
        told.mkdir(parents=True)
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    return str(folder)


@pytest.mark.slow
def test_a_worker_of_other_versions_is_refused_by_all_that_differs(tmp_path: Path, pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table big(id int)", "insert into big values (1)")
    env = configured(tmp_path, pgdb.url)
    place = {**env, "PYTHONPATH": pretending(tmp_path / "old", cuetl="0.0.9", pyarrow="9.0.0", numba="0.50.0")}
    wish = ("export", "db", "--table", "big", "--format", "parquet", "--to", "x")
    with dask(tmp_path, 1, place) as (address, _):
        refused = until(
            lambda: (
                done
                if "has no workers" not in (done := cuetl(*wish, "--engine", address, cwd=tmp_path, env=env)).err
                and "no Dask scheduler" not in done.err
                else None
            ),
            60,
        )
    said = one_paragraph(refused.err)
    assert refused.code == 1
    assert f"of {address} has cuetl 0.0.9, pyarrow 9.0.0, numba 0.50.0; this process has " in said
    assert f"this process has cuetl {version('cuetl')}, pyarrow {version('pyarrow')}, numba {version('numba')}" in said
    assert not (tmp_path / "x").exists()


def test_a_package_that_is_missing_is_a_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "COMPARED", (*probe.COMPARED, "no-such-package"))
    found = probe.probe().versions
    assert found["no-such-package"] == "none"
    assert set(found) == {"python", *probe.COMPARED}
    assert found["pyarrow"] == version("pyarrow")
