"""`cuetl demo`: a small SQLite shop, a tensor dataset and a Parquet dataset of it, made from nothing in seconds."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from connectors.base import Query
from etl.cli import output, process
from etl.core.errors import ConfigError
from etl.core.lookup import sql_text
from etl.planning.jobs import Job, Reading, Write
from etl.run import runner
from etl.run.naming import new_run_id
from etl.settings import Settings, endpoint
from etl.tensors.options import WriteOptions

SHOP = "shop.sqlite"
SPLIT = {"train": "0.8", "val": "0.2"}
FEATURES = (
    *("orders", "pieces", "spent", "largest", "discount", "gifts"),
    *("days_since_order", "days_since_sign_up", "newsletter", "credit"),
)
OPEN = """import etl
ds = etl.open_dataset("{tensors}")
X, y = ds.split("train").arrays()"""


def demo(to: str, /, *, as_json: bool, debug: bool) -> None:
    """Build the shop and publish both datasets; again makes the next version of each.

    Raises:
        EtlError: The folder cannot be written, or a run failed.
    """
    process.prepare(None, debug=debug)
    folder = Path(to)
    shop = folder / SHOP
    build(shop)
    run_id = new_run_id()
    with output.progress(quiet=as_json) as progress:
        results = runner.run(jobs(folder, run_id), run_id=run_id, progress=progress)
    if as_json:
        output.emit_results(results)
        return
    output.report(results, warnings=False)  # they are in the manifests; here they would be about the demo itself
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
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def jobs(folder: Path, run_id: str, /) -> tuple[Job, Job]:
    """The demo's two datasets, of one snapshot of the shop: features to train on, and the orders as they are."""
    at = endpoint(f"sqlite:///{_escaped(folder / SHOP)}", at=Settings())
    features = WriteOptions(
        features=FEATURES,
        target=("churned",),
        key=("user_id",),
        dtype="float32",
        cast="round",
        split=SPLIT,
        split_key=("user_id",),
    )
    query = Query(sql=sql_text("demo/features.sql"), key=features.key, cast=features.cast, run_id=run_id)
    table = Query(table="orders", run_id=run_id)
    return (
        Job(
            Reading(at, query, name="features"), (Write(str(folder / "features"), "safetensors", features, "replace"),)
        ),
        Job(Reading(at, table, name="orders"), (Write(str(folder / "orders"), "parquet", WriteOptions(), "replace"),)),
    )


def _escaped(path: Path) -> str:
    """The path as a URL has it."""
    return str(path).replace("%", "%25").replace("?", "%3F").replace("#", "%23")
