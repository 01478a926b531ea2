"""Functions of whole data: joins and groups over several sources, what is left on the disk, and whose fault it was."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from connectors.base import CutWish
from etl.core.errors import EtlError, Retry, SchemaError, UserCodeError
from etl.engine import spool
from etl.planning import loader
from etl.run.naming import new_run_id
from etl.run.pipelines import plan_pipeline, run_pipeline
from etl.tensors.dataset import open_dataset
from tests.command import COMMAND, cuetl
from tests.integration.test_faults_engine import dask

if TYPE_CHECKING:
    from pathlib import Path

    from etl.run.result import RunResult
    from tests.servers.postgresql import PostgresDatabase

HEAD = """
import time
import pyarrow as pa
from etl import SQL, Parquet, Tensors, frames, pipeline
from connectors.base import Endpoint, Query
from connectors.memory import MemorySource

ORDERS = pa.table({
    "id": pa.array(range(600), pa.int64()),
    "user": pa.array([None if i % 97 == 0 else i % 50 for i in range(600)], pa.int32()),
    "qty": pa.array([i % 9 if i % 11 else None for i in range(600)], pa.int64()),
})
USERS = pa.table({"user": pa.array(range(45), pa.int32()), "name": [f"user {i}" for i in range(45)]})
"""
JOIN = """
@pipeline(
    sources={"orders": MemorySource(ORDERS, key="id"), "users": MemorySource(USERS, key="user")},
    sink=Tensors("out", features=["qty", "total"], key="id", order="key"),
)
def joined(orders, users):
    print("a line for people")
    kept = orders[orders["user"].notnull()]
    total = kept.groupby("user", sort=True)["qty"].sum(min_count=1).rename("total").reset_index()
    return kept.merge(users, on="user", how="left").merge(total, on="user", how="left").drop(columns=["name"])
"""


def run(
    folder: Path, body: str, name: str = "", *, workers: int | None = 1, parts: int | None = None, engine: str = "cpu"
) -> RunResult:
    """Run a pipeline of a file of these lines; it writes to `folder`/out."""
    file = folder / "pipes.py"
    file.write_text(HEAD + body.replace('("out"', f'("{folder}/out"'), encoding="utf-8")
    run_id = new_run_id()
    bound = loader.load(f"{file}:{name}" if name else str(file)).bind({}, run_id)
    if parts is not None:
        for reading in bound.readings.values():
            object.__setattr__(reading, "wish", type(reading.wish)(partitions=parts))
    return run_pipeline(bound, run_id=run_id, workers=workers, engine=engine)


def document(folder: Path) -> dict[str, Any]:
    """The manifest as its JSON says."""
    return dict(open_dataset(str(folder / "out")).manifest.document)


def nothing_is_left(folder: Path) -> bool:
    """No hidden folder of a run."""
    return not [p for p in folder.iterdir() if ".cuetl-" in p.name]


@pytest.fixture
def many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every spool file is a partition, so that a join has to shuffle."""
    monkeypatch.setattr(spool, "LEAST_GROUP_BYTES", 1)


@pytest.mark.usefixtures("many_partitions")
def test_a_join_and_a_group_are_the_same_however_sources_are_cut(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = []
    for parts, workers in ((1, 1), (7, None)):  # by one thread, and by one for each core
        folder = tmp_path / str(parts)
        folder.mkdir()
        result = run(folder, JOIN, parts=parts, workers=workers)
        assert (result.rows, result.partitions) == (593, 2 * parts)
        assert nothing_is_left(folder)
        found.append(document(folder))
    assert found[0]["content_sha256"] == found[1]["content_sha256"]
    values = open_dataset(str(tmp_path / "7" / "out")).tensors()
    totals = {u: sum(i % 9 for i in range(600) if i % 97 and i % 11 and i % 50 == u) for u in range(50)}
    keys = [i for i in range(600) if i % 97]
    assert values["id"].tolist() == keys
    assert values["x"][:, 1].tolist() == [totals[i % 50] for i in keys]
    said = capfd.readouterr()
    assert (said.out, said.err.count("a line for people")) == ("", 4)


@pytest.mark.slow
@pytest.mark.usefixtures("many_partitions")
def test_processes_make_the_same_as_threads(tmp_path: Path) -> None:
    (tmp_path / "threads").mkdir()
    run(tmp_path / "threads", JOIN, parts=3, workers=None)
    (tmp_path / "processes").mkdir()
    run(tmp_path / "processes", JOIN, parts=3, workers=2)
    hashes = [document(tmp_path / kind)["content_sha256"] for kind in ("threads", "processes")]
    assert hashes[0] == hashes[1]


EVERY_TYPE = """
import sys
sys.path.insert(0, "FOLDER")
import every
@pipeline(
    sources={"left": MemorySource(every.LEFT, key="k"), "right": MemorySource(every.RIGHT, key="k")},
    sink=Parquet("out", key="k", order="key"),
)
def merged(left, right):
    return left.merge(right, on="k", how="inner", broadcast=False)
"""


@pytest.mark.usefixtures("many_partitions")
def test_every_type_goes_through_a_shuffle_unchanged(tmp_path: Path) -> None:
    rows = 40
    start = datetime(2024, 1, 1)  # noqa: DTZ001 - a naive time is a type of its own
    kinds: dict[str, tuple[Any, Any]] = {
        "small": (pa.int8(), lambda i: i),
        "wide": (pa.uint64(), lambda i: 2**63 + i),
        "big": (pa.int64(), lambda i: 2**62 + i),
        "real": (pa.float64(), lambda i: [float("nan"), float("inf"), -0.0, 1.5][i % 4]),
        "half": (pa.float32(), lambda i: [float("nan"), 1.5][i % 2]),
        "flag": (pa.bool_(), lambda i: i % 2 == 0),
        "word": (pa.string(), lambda i: f"é{i}"),
        "money": (pa.decimal128(30, 2), lambda i: Decimal(i).scaleb(-2)),
        "at": (pa.timestamp("us"), lambda i: start + timedelta(microseconds=i)),
        "zoned": (pa.timestamp("us", "UTC"), lambda i: start.replace(tzinfo=UTC) + timedelta(microseconds=i)),
        "day": (pa.date32(), lambda i: date(1850, 1, 1) + timedelta(i)),
        "long": (pa.duration("us"), lambda i: timedelta(microseconds=i)),
        "tags": (pa.list_(pa.int32()), lambda i: [i, None]),
        "empty": (pa.int32(), lambda _: None),
    }
    columns = {n: pa.array([None if i % 7 == 3 else f(i) for i in range(rows)], t) for n, (t, f) in kinds.items()}
    left = pa.table({"k": pa.array(range(rows), pa.int64()), **columns})
    right = pa.table({"k": pa.array(range(rows), pa.int64()), "w": pa.array(range(rows), pa.int64())})
    module = tmp_path / "every.py"
    module.write_text(
        "import pyarrow.feather as f\n"
        f"LEFT = f.read_table('{tmp_path}/left.arrow')\nRIGHT = f.read_table('{tmp_path}/right.arrow')\n",
        encoding="utf-8",
    )
    for name, table in (("left", left), ("right", right)):
        with pa.OSFile(str(tmp_path / f"{name}.arrow"), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    run(tmp_path, EVERY_TYPE.replace("FOLDER", str(tmp_path)), parts=3)
    assert sum(p["source"] == "result of merged" for p in document(tmp_path)["partitions"]) > 1, "it was shuffled"
    made = open_dataset(str(tmp_path / "out")).table()
    assert made.column_names == [*left.column_names, "w"]
    for name in left.column_names:
        assert repr(made.column(name).to_pylist()) == repr(left.column(name).to_pylist()), name
        assert made.schema.field(name).type == left.schema.field(name).type


WIDE = """
@pipeline(sources={"notes": SQL("URL", "select id, amount from notes")}, sink=Parquet("out", key="id", order="key"))
def wide(notes):
    return notes.assign(more=notes["amount"])
"""


def test_decimals_that_turn_out_wider_than_their_store_says_go_through(tmp_path: Path, pgdb: PostgresDatabase) -> None:
    pgdb.sql("create table notes (id int primary key, amount numeric)")
    pgdb.sql("insert into notes values (1, 12345678901234567890123456.5), (2, null), (3, 0.25)")
    run(tmp_path, WIDE.replace("URL", pgdb.url))
    made = open_dataset(str(tmp_path / "out")).table()
    assert made.column("more").to_pylist() == made.column("amount").to_pylist()
    assert str(made.column("amount")[0].as_py()).startswith("12345678901234567890123456.5")


LABELS = """
@pipeline(sources={"first": SQL("URL", table="one"), "second": SQL("URL", table="other")}, sink=Parquet("out"))
def labels(first, second):
    return FRAMES
"""


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        ("second", ["x", "a"]),
        ("first", ["a", "b"]),
        ("first.merge(second.rename(columns={'mode': 'm'}), on='id')[['id', 'm', 'mode']]", ["a", "b"]),
        ("frames.concat([one.astype({'mode': 'str'}) for one in (first, second)])", ["a", "b", "x", "a"]),
    ],
)
def test_labels_of_one_name_in_two_sources_keep_apart(
    frames: str, found: list[str], tmp_path: Path, pgdb: PostgresDatabase
) -> None:
    pgdb.sql("create type ab as enum ('b', 'a'); create type xa as enum ('x', 'a', 'y')")
    pgdb.sql("create table one (id int, mode ab); create table other (id int, mode xa)")
    pgdb.sql("insert into one values (1, 'a'), (2, 'b'); insert into other values (1, 'x'), (2, 'a')")
    run(tmp_path, LABELS.replace("URL", pgdb.url).replace("FRAMES", frames))
    made = open_dataset(str(tmp_path / "out")).table()
    assert sorted(str(one) for one in made.column("mode").to_pylist()) == sorted(found)


def test_a_column_that_no_frame_carries_is_named_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"^source blobs: .*raw"):
        run(
            tmp_path,
            '@pipeline(sources={"blobs": pa.table({"raw": [b"a"]})}, sink=Parquet("out"))\n'
            "def f(blobs):\n    return blobs\n",
        )
    assert nothing_is_left(tmp_path)


BAD: dict[str, tuple[str, type[EtlError], tuple[str, ...]]] = {
    "nothing": ("orders.merge(users, on='user')", UserCodeError, ("it returned None", "Did you forget `return`?")),
    "a series": ("return orders['qty']", UserCodeError, ("it returned a Series", ".reset_index()")),
    "keys that are no column": (
        "return orders.groupby('user')[['qty']].sum(min_count=1)",
        SchemaError,
        ("pipes.py, line 14, bad: the frame's index is named user and is no column", ".reset_index()"),
    ),
    "a column that is not there": (
        "return orders[orders['qtty'] > 1]",
        UserCodeError,
        (
            "pipes.py, line 16, in bad: KeyError",
            "the line is `return orders[orders['qtty'] > 1]`",
            "called with no rows",
        ),
    ),
    "inside Dask's trial": (
        "return orders.map_partitions(lambda f: f.assign(x=1 // 0))",
        UserCodeError,
        ("pipes.py, line 16", "ZeroDivisionError: integer division or modulo by zero"),
    ),
    "when it is computed": (
        "return orders.map_partitions(late, meta=orders._meta)",
        UserCodeError,
        ("pipes.py, line 21, in bad: ValueError: no more than 500", "the line is `raise ValueError("),
    ),
    "other columns for some rows": (
        "return orders.map_partitions(other, meta=orders._meta.assign(x=1))",
        SchemaError,
        ("pipes.py, bad, partition 1: column x came out of the function as string",),
    ),
}
LATER = """

def late(frame):
    if len(frame) and frame["id"].max() > 500:
        raise ValueError("no more than 500")
    return frame

def other(frame):
    return frame.assign(x="text" if len(frame) else 1)
"""


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_names_the_users_line_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    line, kind, said = BAD[name]
    body = (
        "@pipeline(sources={'orders': ORDERS, 'users': USERS}, sink=Parquet(\"out\"))\n"
        f"def bad(orders, users):\n    {line}\n{LATER}"
    )
    with pytest.raises(kind) as caught:
        run(tmp_path, body)
    for words in said:
        assert words in str(caught.value), caught.value
    assert nothing_is_left(tmp_path)
    assert not (tmp_path / "out").exists()


OTHERS = """
@pipeline(sources={"orders": ORDERS}, sink=Parquet("out", key="id", order="key"))
def computes(orders):
    mean = orders["qty"].mean().compute()
    return orders.assign(above=(orders["qty"] > mean).fillna(False)).compute()

@pipeline(sources={"orders": ORDERS, "users": USERS}, sink=Parquet("out", mode="replace"))
def nothing(orders, users):
    both = orders.merge(users, on="user")
    return both[both["id"] < 0]
"""


@pytest.mark.filterwarnings("ignore:.*both publish to")
def test_a_function_may_compute_itself_and_may_give_no_rows(tmp_path: Path) -> None:
    assert run(tmp_path, OTHERS, "computes").rows == 600
    made = open_dataset(str(tmp_path / "out")).table()
    known = [i % 9 for i in range(600) if i % 11]
    above = [bool(i % 11 and i % 9 > sum(known) / len(known)) for i in range(600)]
    assert made.column("above").to_pylist() == above
    assert run(tmp_path, OTHERS, "nothing").rows == 0
    assert open_dataset(str(tmp_path / "out")).table().schema.names == ["id", "user", "qty", "name"]


AGAIN = """
import os
from etl import Retry

@pipeline(sources={"orders": ORDERS}, sink=Parquet("out"), retries=1)
def again(orders):
    return orders.map_partitions(now_and_then, meta=orders._meta)

def now_and_then(frame):
    if len(frame) and not os.path.exists("FOLDER/tried"):
        open("FOLDER/tried", "w").close()
        raise Retry("not yet", after=0)
    return frame
"""


def test_a_function_may_ask_for_another_try_as_often_as_its_pipeline_says(tmp_path: Path) -> None:
    body = AGAIN.replace("FOLDER", str(tmp_path))
    assert run(tmp_path, body).rows == 600
    with pytest.raises(Retry, match=r"^attempt 2: .*not yet"):
        run(tmp_path, body.replace("not os.path.exists", "os.path.exists"))
    assert nothing_is_left(tmp_path)


INNER = """
@pipeline(sources={"orders": MemorySource(ORDERS, key="id")}, sink=Parquet("out"))
def inner(orders):
    limit = 500
    def late(frame):
        if len(frame) and frame["id"].max() > limit:
            raise ValueError("too many")
        return frame
    return orders.map_partitions(late)
"""


HUNGRY = """
@pipeline(sources={"orders": MemorySource(ORDERS, key="id")}, sink=Parquet("out", key="id"))
def hungry(orders):
    def eat(frame):
        if len(frame) > %d:
            raise MemoryError("std::bad_alloc")
        return frame
    return orders.map_partitions(eat)
"""


@pytest.mark.parametrize("most", [150, 10])
def test_a_graph_that_memory_does_not_hold_is_made_once_more_of_half_as_large_partitions(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spool, "LEAST_GROUP_BYTES", 6000)
    monkeypatch.setattr(spool, "GROUPS_PER_WORKER", 1)
    (tmp_path / "p.py").write_text(HEAD + HUNGRY % most)
    bound = loader.load("p.py").bind({}, new_run_id())
    bound = replace(bound, readings={n: replace(r, wish=CutWish(partitions=6)) for n, r in bound.readings.items()})
    if most == 150:
        assert run_pipeline(bound, run_id=new_run_id(), engine="cpu").rows == 600
        assert open_dataset(tmp_path / "out").table().num_rows == 600
        return
    said = "also with partitions of half the size.*memory ran out while hungry"
    with pytest.raises(EtlError, match=said):
        run_pipeline(bound, run_id=new_run_id(), engine="cpu")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_function_within_the_function_names_its_line_from_another_process_too(tmp_path: Path) -> None:
    with dask(tmp_path, 1, {}) as (address, _):
        time.sleep(3)  # the scheduler and its worker come up
        with pytest.raises(UserCodeError, match=r"pipes.py, line 20, in inner: .*the line is `raise ValueError\("):
            run(tmp_path, INNER, engine=address)


OWN_STEP = """
@pipeline(sources={"orders": MemorySource(ORDERS, key="id")}, sink=Parquet("out"))
def own(orders):
    return orders.map_partitions(kept, meta=orders._meta)

def kept(frame):
    if len(frame) and WRONG:
        raise ValueError("as it should")
    return frame[frame["qty"].gt(3).fillna(False)]
"""


@pytest.mark.slow
def test_a_scheduler_of_somebody_else_knows_the_users_own_steps(tmp_path: Path) -> None:
    with dask(tmp_path, 1, {}) as (address, _):
        time.sleep(3)  # the scheduler and its worker come up
        assert run(tmp_path, "WRONG = False\n" + OWN_STEP, parts=3, engine=address).rows == sum(
            i % 9 > 3 and i % 11 > 0 for i in range(600)
        )
        with pytest.raises(UserCodeError, match=r"pipes.py, line 22, in own: ValueError: as it should"):
            run(tmp_path, "WRONG = True\n" + OWN_STEP, parts=3, engine=address)
    assert nothing_is_left(tmp_path)


STORES = """
@pipeline(
    sources={
        "orders": SQL("sqlite:///FOLDER/shop.db", table="orders"),
        "days": SQL("sqlite:///FOLDER/shop.db", table="days"),
        "users": USERS,
    },
    sink=Parquet("out"),
)
def three(orders, days, users):
    users = users.assign(user=users["user"].astype("Int64"))
    return orders.merge(days, on="day").merge(users, on="user")
"""


def test_sources_of_one_connection_share_a_moment_and_others_have_their_own(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript(
            "create table orders (id integer primary key, user integer not null, day integer not null);"
            "create table days (day integer primary key, word text)"
        )
        database.executemany("insert into orders values (?, ?, ?)", [(i, i % 50, i % 3) for i in range(90)])
        database.executemany("insert into days values (?, ?)", [(0, "zero"), (1, "one")])
        database.commit()
    body = STORES.replace("FOLDER", str(tmp_path))
    result = run(tmp_path, body)
    assert result.rows == sum(i % 50 < 45 and i % 3 < 2 for i in range(90))
    made = document(tmp_path)
    snapshots = made["snapshots"]
    assert list(snapshots) == sorted(["orders", "days", "users"])
    assert snapshots["orders"] == snapshots["days"] != snapshots["users"]
    assert [(s["name"], s["rows_read"], s["rows_written"]) for s in made["source"]] == [
        ("orders", 90, 90),
        ("days", 2, 2),
        ("users", 45, 45),
    ]
    assert [p["source"] for p in made["partitions"]] == ["orders", "days", "users", "result of three"]
    assert [w["count"] for w in result.warnings if w["code"] == "snapshots"] == [2]
    dataset = open_dataset(str(tmp_path / "out"))
    dataset.verify("sha256")
    shown = dataset.summary()
    assert [s["name"] for s in shown["source"]] == ["orders", "days", "users"]  # type: ignore[attr-defined]

    plan = plan_pipeline(loader.load(str(tmp_path / "pipes.py")).bind({}, "r1"))
    assert [c["name"] for c in plan["schema"]] == ["id", "user", "day", "word", "name"]  # type: ignore[attr-defined]
    assert [p["source"] for p in plan["partitions"]] == ["orders", "days", "users"]  # type: ignore[attr-defined]
    assert "2 moments" in str(plan["snapshot"])


SLEEPS = """
@pipeline(sources={"orders": ORDERS}, sink=Parquet("out"))
def sleeps(orders):
    return orders.map_partitions(wait, meta=orders._meta)

def wait(frame):
    if len(frame):
        open("waiting", "w").close()
        time.sleep(8)
    return frame
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_in_the_function_leaves_nothing_for_long(how: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "pipes.py"
    file.write_text(HEAD + SLEEPS, encoding="utf-8")
    began = subprocess.Popen(
        [*COMMAND, "run", "pipes.py", "--quiet"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "waiting").exists() and time.monotonic() < deadline and began.poll() is None:
        time.sleep(0.05)
    assert not nothing_is_left(tmp_path), "rows lie in the hidden folder between two passes"
    os.kill(began.pid, how)
    _, said = began.communicate(timeout=60)
    assert not (tmp_path / "out").exists()
    if how == signal.SIGINT:
        assert began.returncode == 130, said
        assert nothing_is_left(tmp_path)
    else:
        assert began.returncode == -signal.SIGKILL
        assert not nothing_is_left(tmp_path)
        file.write_text(HEAD + SLEEPS.replace("time.sleep(8)", "pass"), encoding="utf-8")
        assert cuetl("run", "pipes.py", cwd=tmp_path).code == 0
        assert nothing_is_left(tmp_path)
