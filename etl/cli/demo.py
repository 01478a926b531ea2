"""`cuetl demo`: a small SQLite shop, a tensor dataset and a Parquet dataset of it, made from nothing in seconds."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.base import Query
from etl.cli import export, output, process
from etl.core.errors import ConfigError
from etl.core.lookup import sql_text
from etl.planning.endpoints import Job, Read, Write
from etl.run import runner
from etl.settings import Settings, endpoint
from etl.tensors.options import WriteOptions

if TYPE_CHECKING:
    from etl.run.result import RunResult
    from etl.tensors.options import Format

SHOP = "shop.sqlite"
SPLIT = {"train": "0.8", "val": "0.2"}
SPLIT_KEY = "user_id"
OPEN = """import etl
ds = etl.open_dataset("{tensors}")
x = ds.split("train").arrays()"""


def demo(to: str, /, *, as_json: bool, debug: bool) -> None:
    """Build the shop and publish both datasets; again makes the next version of each.

    Raises:
        EtlError: The folder cannot be written, or a run failed.
    """
    process.prepare(None, debug=debug)
    folder = Path(to)
    shop = folder / SHOP
    build(shop)
    results = [*_export(shop, folder / "features", "safetensors"), *_export(shop, folder / "orders", "parquet")]
    if as_json:
        output.emit_results(results)
        return
    output.report(results)
    output.text()
    output.text("open the tensors in Python:")
    output.text()
    for line in OPEN.format(tensors=folder / "features").splitlines():
        output.text(f"    {line}")


def build(shop: Path, /) -> None:
    """Write the shop's database under a temporary name, then switch it in: an interrupted build leaves nothing half.

    Raises:
        ConfigError: The folder is a file or cannot be written.
    """
    fresh = shop.with_name(f".{shop.name}.{os.getpid()}")
    try:
        shop.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as database:
            steps = (
                "pragma journal_mode = off; pragma synchronous = off;",  # rebuilt whole when lost
                sql_text("demo/schema.sql"),
                sql_text("demo/rows.sql"),
                "analyze;",
            )
            database.executescript("\n".join(steps))
        fresh.replace(shop)
    except (OSError, sqlite3.Error) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"the demo's shop {shop} cannot be written: {said}", hint="Name another --to.") from error
    finally:
        fresh.unlink(missing_ok=True)


def _export(shop: Path, target: Path, fmt: Format) -> list[RunResult]:
    run_id = export.new_run_id()
    at = endpoint(f"sqlite:///{_escaped(shop)}", at=Settings())
    if fmt == "safetensors":
        query = Query(sql=sql_text("demo/features.sql"), run_id=run_id)
        options = WriteOptions(split=SPLIT, split_key=(SPLIT_KEY,))
    else:
        query = Query(table="orders", run_id=run_id)
        options = WriteOptions()
    job = Job(Read(at, query, name=target.name), (Write(str(target), fmt, options, "replace"),))
    with output.progress(quiet=False) as progress:
        return runner.run([job], run_id=run_id, progress=progress)


def _escaped(path: Path) -> str:
    """The path as a URL has it."""
    return str(path).replace("%", "%25").replace("?", "%3F").replace("#", "%23")
