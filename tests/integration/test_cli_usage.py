"""The command as a user meets it: flags, exit codes, one-paragraph errors, and what starts with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.command import COMMAND, cuetl, one_paragraph

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = [
    *("pandas", "dask", "distributed", "numba", "cudf", "torch"),
    *("sqlalchemy", "psycopg", "pyarrow", "rich", "structlog"),
]
SECRET = "Kn4ry#w:r/d%?9"
FIELDS = {
    *("run_id", "status", "target", "format", "version", "rows"),
    *("bytes", "partitions", "engine", "seconds", "columns", "warnings"),
    *("rows_read", "rows_dropped", "rows_added", "checks"),
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a small database `shop.db` and a cuetl.toml that names it `shop`."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript(
            """
            create table orders (id integer primary key, qty integer, price decimal(10,2), note text);
            create table sales_north (id integer primary key);
            create table sales_south (id integer primary key);
            create view old as select * from orders where id < 3;
            insert into orders values (1, 2, 9.99, 'a'), (2, null, 1.5, null), (3, 4, 0.01, 'ü');
            insert into sales_north values (1), (2);
            insert into sales_south values (3);
            """
        )
    (tmp_path / "cuetl.toml").write_text('[connections.shop]\nurl = "sqlite:///shop.db"\n')
    return tmp_path


@pytest.mark.parametrize(
    "command", ["", "export", "inspect", "init", "demo", "doctor", "dataset", "dataset verify", "run", "validate"]
)
def test_help_imports_nothing_heavy(tmp_path: Path, command: str) -> None:
    code = (
        "import sys; from etl.cli.main import run; code = run([*sys.argv[1:], '--help']); "
        f"print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert done.stdout.startswith(f"Usage: cuetl {command}".rstrip())


def test_importing_the_packages_imports_nothing_heavy(tmp_path: Path) -> None:
    code = f"import sys, etl, connectors; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("export shop --to x", "--table"),
        ("export shop --table orders", "--to"),
        ("export shop --formt parquet --table orders --to x", "--format"),
        ("export shop --table orders --sql 1 --to x", "--sql and --table were given together"),
        ("export shop --sql 1 --sql 2 --to x", "'--sql': it is given twice"),
        ("export shop --table orders --to x --to y --format parquet", "2 --to and 1 --format"),
        ("export shop --table orders --to x --to ./x", "--to names"),
        ("export shop --table orders --to x --format parket", "Did you mean parquet?"),
        ("export shop --table orders --to mars://b/x", "is a storage that nothing installed here knows"),
        ("export shop --table orders --to x --partitions 0", "--partitions"),
        ("export shop --table orders --to x --partitions many", "--partitions"),
        ("export shop --table orders --to x --partitions 1000000", "--partitions"),
        ("export shop --table orders --to x --workers 0", "--workers"),
        ("export shop --table orders --to x --limit -1", "--limit"),
        ("export shop --table orders --to x --partition-bytes big", "--partition-bytes"),
        ("export shop --table orders --to x --split train=0.5,val=0.4 --split-key id", "sum to 0.9, not 1"),
        ("export shop --table orders --to x --split train=1", "--split-key"),
        ("export shop --table orders --to x --mode merge", "create, replace, append"),
        ("export shop --table orders --to x --cast floor", "exact, round, saturate"),
        ("export shop --table orders --to x --nulls zero", "mask, error, drop, fill=VALUE"),
        ("export shop --table orders --to x --special skip", "error, null, clamp"),
        ("export shop --table orders --to x --layout tall", "columns, packed"),
        ("export shop --table orders --to x --engine gpuu", "auto, cpu, gpu, tcp://"),
        ("export shop --table orders --to x --param a=1", "--param"),
        ("export shop --table orders --to x --types a", "--types"),
        ("export shop --table orders --to x --columns id,id", "names id twice"),
        ("export shop --table orders --to x --columns idd", "Did you mean id?"),
        ("export shop --table orders --to x --features qtty --target id", "Did you mean qty?"),
        ("export shop --sql-file none.sql --to x", "none.sql cannot be read: No such file"),
        ("export shop --table no* --to x", "no table matches --table no*"),
        ("export shopp --table orders --to x", "Did you mean shop?"),
        ("export postgrsql://h/a --table orders --to x", "unknown scheme 'postgrsql'"),
        ("export mongodb+nope://x/y --sql 1 --to x", "mongodb+nope"),
        ("export shop extra --table orders --to x", "extra"),
        ("exprt", "Did you mean 'export'?"),
        ("inspect shop --table a --sql b", "given together"),
        ("dataset verify", "TARGET"),
        ("doctor --jsn", "--json"),
    ],
)
def test_usage_errors_exit_2_and_name_what_was_meant(shop: Path, arguments: str, said: str) -> None:
    done = cuetl(*arguments.split(), cwd=shop)
    assert said in one_paragraph(done.err)
    assert (done.code, done.out) == (2, "")
    assert not (shop / "x").exists()


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_missing_table_exits_1_with_the_nearest_one(shop: Path, extra: list[str]) -> None:
    done = cuetl("export", "shop", "--table", "ordrs", "--to", "x", *extra, cwd=shop)
    assert "ordrs" in one_paragraph(done.err)
    assert (done.code, done.out) == (1, "")
    assert not (shop / "x").exists()


def test_debug_shows_the_traceback_and_the_paragraph(shop: Path) -> None:
    done = cuetl("export", "shop", "--table", "ordrs", "--to", "x", "--debug", cwd=shop)
    assert "Traceback" in done.err
    assert done.err.rstrip().splitlines()[-1].startswith("cuetl: ")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://etl:{SECRET}@127.0.0.1:5432/shop",
        "postgresql://etl:Kn4ry@w@127.0.0.1:5432/shop",
        "postgresql://etl:12/Kn4ry@127.0.0.1:5432/shop",
        "postgresql://etl:Kn4ry@127.0.0.1:port/shop",
        "postgresql:/etl:Kn4ry@127.0.0.1/shop",
    ],
)
def test_a_malformed_url_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    done = cuetl("export", url, "--sql", "select 1", "--to", "x", cwd=tmp_path)
    assert "password" in one_paragraph(done.err)
    assert done.code == 2
    assert "Kn4ry" not in done.out + done.err


def test_an_extra_argument_with_a_password_is_not_shown(tmp_path: Path) -> None:
    done = cuetl("export", "a", "postgresql://etl:Kn4ryKn4ry@h/shop", "--to", "x", cwd=tmp_path)
    assert done.code == 2
    assert "Kn4ry" not in done.out + done.err


def test_a_mistake_in_the_configuration_names_the_file_and_the_key(shop: Path) -> None:
    (shop / "cuetl.toml").write_text('[connections.shop]\nurll = "sqlite:///shop.db"\n')
    done = cuetl("export", "shop", "--table", "orders", "--to", "x", cwd=shop)
    assert "cuetl.toml: [connections.shop] has an unknown key urll. Did you mean url?" in one_paragraph(done.err)
    assert done.code == 2


def test_a_connection_is_found_by_the_environment(shop: Path, tmp_path: Path) -> None:
    (shop / "cuetl.toml").rename(shop / "other.toml")
    done = cuetl("inspect", "shop", "--json", cwd=tmp_path, env={"CUETL_CONFIG": str(shop / "other.toml")})
    assert {one["name"] for one in done.json["tables"]} >= {"orders", "sales_north", "sales_south"}


def test_a_broken_pipe_is_quiet(shop: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "inspect", "shop"], cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        process.wait(60)
    assert said == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_130_and_leaves_nothing(shop: Path, number: signal.Signals) -> None:
    with closing(sqlite3.connect(shop / "shop.db")) as database:
        database.executescript(
            """
            create table long (id integer primary key, price decimal(10,2), at timestamp);
            with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000000)
            insert into long select i, i / 100.0, '2024-01-01 00:00:00' from n;
            """
        )
    with subprocess.Popen(
        [*COMMAND, "export", "shop", "--table", "long", "--to", "x", "--format", "parquet"],
        cwd=shop,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(5)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert "nothing was published" in one_paragraph(err).lower()
    assert not (shop / "x").exists()
    assert sorted(path.name for path in shop.iterdir()) == ["cuetl.toml", "shop.db"]


ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select i as a from n"


@pytest.mark.parametrize(
    ("locked", "arguments"),
    [
        (False, ["--sql", ENDLESS]),  # the scan for a type that nothing declares
        (False, ["--sql", ENDLESS, "--types", "a=int64"]),  # the count
        (True, ["--table", "orders"]),  # the wait for another's lock
    ],
    ids=["scan", "count", "lock"],
)
def test_an_interrupt_ends_planning_at_once(shop: Path, tmp_path: Path, locked: bool, arguments: list[str]) -> None:  # noqa: FBT001
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with closing(sqlite3.connect(shop / "shop.db", isolation_level=None)) as database:
        if locked:
            database.execute("begin exclusive")
        with subprocess.Popen(
            [*COMMAND, "export", "shop", *arguments, "--to", "x", "--format", "parquet"],
            cwd=shop,
            env={**os.environ, "TMPDIR": str(scratch)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(4)
                sent = time.monotonic()
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
            finally:
                process.kill()
    assert time.monotonic() - sent < 5
    assert (process.returncode, out) == (130, "")
    assert "nothing was published" in one_paragraph(err)
    assert not (shop / "x").exists()
    assert list(scratch.glob("cuetl-*")) == []


def test_an_interrupt_ends_a_command_whose_main_thread_does_not_answer() -> None:
    code = (
        "import ctypes, signal; from etl.cli.process import end_after_interrupt; end_after_interrupt(0.5); "
        "signal.signal(signal.SIGTERM, lambda *_: None); print('ready', flush=True); "
        "[ctypes.CDLL(None).sleep(5) for _ in range(8)]"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=15)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted" in one_paragraph(err)


def test_a_typed_password_is_overwritten_in_the_process_list(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from etl.cli.process import prepare; prepare(sys.argv[1], debug=False); "
        "print(pathlib.Path('/proc/self/cmdline').read_bytes().decode().split(chr(0)))"
    )
    url = "postgresql://etl:Kn4ryKn4ry@h/shop"
    done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "Kn4ry" not in done.stdout
    assert "postgresql://etl:**********@h/shop" in done.stdout
    said = "the password in the URL was in the process list at the start; use a connection of cuetl.toml instead"
    assert done.stderr == f"cuetl: warning: {said}\n"


def test_the_list_of_commands_fits_a_terminal_without_being_cut(tmp_path: Path) -> None:
    for command in ("", "dataset"):
        done = cuetl(*command.split(), "--help", cwd=tmp_path, env={"COLUMNS": "80"})
        assert "..." not in done.out.partition("Commands:")[2]


def test_version_is_printed(tmp_path: Path) -> None:
    done = cuetl("--version", cwd=tmp_path)
    assert done.code == 0
    assert done.out.startswith("cuetl 0.")


def test_json_is_one_object_with_the_fields_users_rely_on(shop: Path) -> None:
    done = cuetl("export", "shop", "--table", "orders", "--to", "x", "--format", "parquet", "--json", cwd=shop)
    assert done.code == 0, done.err
    assert set(done.json) == FIELDS
    assert (done.json["rows"], done.json["version"], done.json["format"]) == (3, 1, "parquet")
    assert done.err == ""
    again = cuetl("export", "shop", "--table", "orders", "--to", "x", "--format", "parquet", cwd=shop)
    assert again.code != 0
    assert "--mode" in one_paragraph(again.err)


def test_several_targets_are_published_from_one_read(shop: Path) -> None:
    pairs = ["--to", "a", "--format", "parquet", "--to", "b", "--format", "safetensors"]
    done = cuetl("export", "shop", "--sql", "select id, qty from orders", *pairs, "--json", cwd=shop)
    assert done.code == 0, done.err
    assert [(one["format"], one["rows"]) for one in done.json["datasets"]] == [("parquet", 3), ("safetensors", 3)]
    assert len({one["run_id"] for one in done.json["datasets"]}) == 1
    for target in "ab":
        assert cuetl("dataset", "verify", target, cwd=shop).code == 0


def test_a_pattern_takes_every_table_that_matches_and_no_view(shop: Path) -> None:
    done = cuetl("export", "shop", "--table", "sales_*", "--table", "orders", "--to", "out", "--format", "parquet",
                 "--json", cwd=shop)  # fmt: skip
    assert done.code == 0, done.err
    found = {one["target"].rpartition("/")[2]: one["rows"] for one in done.json["datasets"]}
    assert found == {"sales_north": 2, "sales_south": 1, "orders": 3}
    assert sorted(path.name for path in (shop / "out").iterdir()) == ["orders", "sales_north", "sales_south"]


def test_a_pattern_finds_a_table_with_a_dot_in_its_name(shop: Path) -> None:
    with closing(sqlite3.connect(shop / "shop.db")) as database, database:
        database.execute('create table "sales.west" (id integer primary key)')
        database.execute('insert into "sales.west" values (7), (8), (9)')
    done = cuetl("export", "shop", "--table", "sales.*", "--to", "out", "--format", "parquet", "--json", cwd=shop)
    assert done.code == 0, done.err
    assert (done.json["rows"], done.json["target"]) == (3, str(shop / "out" / "sales.west"))


def test_files_follow_partition_bytes(shop: Path) -> None:
    with closing(sqlite3.connect(shop / "shop.db")) as database, database:
        database.execute("create table noise (id integer primary key, x real)")
        database.execute(
            "insert into noise with recursive n(i) as (select 1 union all select i + 1 from n where i < 30000) "
            "select i, i / 7.0 from n"
        )
    flags = ["--table", "noise", "--to", "x", "--features", "id,x", "--partitions", "1"]
    done = cuetl("export", "shop", *flags, "--partition-bytes", "16KiB", cwd=shop)
    assert done.code == 0, done.err
    sizes = [path.stat().st_size for path in (shop / "x").glob("*.safetensors")]
    # Tensor files have 4096 rows or more, for their bookkeeping.
    assert 7 <= len(sizes) <= 8
    assert sum(sizes) > 30000 * 2 * 8


def test_each_warning_is_said_once_and_ends_in_one_full_stop(shop: Path) -> None:
    done = cuetl("export", "shop", "--sql", "select * from orders order by id", "--to", "x", "--format", "safetensors",
                 "--json", cwd=shop)  # fmt: skip
    assert done.code == 0, done.err
    said = [one["text"] for one in done.json["warnings"]]
    assert "The query has an ORDER BY. Give --partition-column to split it." in said
    assert len(said) == len(set(said))
    manifest = cuetl("dataset", "show", "x", "--json", cwd=shop).json
    assert sorted(one["text"] for one in manifest["warnings"]) == sorted(said)


def test_a_plan_reads_and_writes_nothing(shop: Path) -> None:
    arguments = ["export", "shop", "--table", "orders", "--to", "x", "--format", "parquet", "--plan"]
    shown = cuetl(*arguments, cwd=shop)
    assert shown.code == 0, shown.err
    assert 'from "orders"' in shown.out
    assert "decimal128(10, 2)" in shown.out
    plan = cuetl(*arguments, "--json", cwd=shop).json
    assert [one["name"] for one in plan["schema"]] == ["id", "qty", "price", "note"]
    assert len(plan["partitions"]) == 1
    assert plan["engine"]["why"]
    assert not (shop / "x").exists()


def test_a_plan_says_why_there_is_one_part_and_what_changes_it(shop: Path) -> None:
    shown = cuetl("export", "shop", "--sql", "select * from orders order by id", "--to", "x", "--plan", cwd=shop)
    assert "1 part: The query has an ORDER BY (order-by). Give --partition-column to split it." in shown.out


def test_quiet_prints_nothing(shop: Path) -> None:
    done = cuetl("export", "shop", "--table", "orders", "--to", "x", "--format", "parquet", "--quiet", cwd=shop)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_the_report_names_what_was_made(shop: Path) -> None:
    done = cuetl("export", "shop", "--table", "orders", "--to", "x", "--format", "parquet", cwd=shop)
    head, row = done.out.splitlines()[:2]
    assert head.split() == ["dataset", "format", "version", "rows", "columns", "size", "parts", "seconds"]
    assert row.split()[:5] == [str(shop / "x"), "parquet", "1", "3", "4"]


@pytest.mark.parametrize(
    "flags", [(), ("--format", "parquet"), ("--split", "a=0.5,b=0.5", "--split-key", "id,price"), ("--key", "id")]
)
def test_a_small_file_is_exported_without_pandas_and_without_other_processes(
    shop: Path, flags: tuple[str, ...]
) -> None:
    code = (
        "import sys, multiprocessing.process as of; from etl.cli.main import run; started = []; start = of.BaseProcess"
        ".start; of.BaseProcess.start = lambda self: (started.append(self), start(self)); code = run(sys.argv[1:]); "
        "print([m for m in ('pandas', 'numba', 'cudf', 'torch') if m in sys.modules], started, file=sys.stderr); "
        "sys.exit(code)"
    )
    command = ["export", "shop", "--table", "orders", "--to", "x", "--quiet", *flags]
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=shop, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "[] []\n")


def test_sql_comes_from_a_file_and_parameters_from_flags(shop: Path) -> None:
    (shop / "q.sql").write_text("\ufeffselect id from orders where id >= :low -- and no more\n", encoding="utf-8")
    done = cuetl("export", "shop", "--sql-file", "q.sql", "--param", "low=2", "--to", "x", "--format", "parquet",
                 "--json", cwd=shop)  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["rows"] == 2


def test_the_manifest_holds_no_user_info(shop: Path) -> None:
    assert cuetl("export", "shop", "--table", "orders", "--to", "x", "--format", "parquet", cwd=shop).code == 0
    manifest = json.loads((shop / "x" / "_manifest.json").read_text())
    assert "@" not in json.dumps(manifest["source"])


@pytest.mark.parametrize(("flags", "drawn"), [([], True), (["--quiet"], False), (["--json"], False)])
def test_progress_is_drawn_on_a_terminal_and_results_stay_on_stdout(
    shop: Path, flags: list[str], *, drawn: bool
) -> None:
    ours, theirs = os.openpty()
    arguments = ["export", "shop", "--table", "orders", "--to", "x", "--format", "parquet", *flags]
    with subprocess.Popen([*COMMAND, *arguments], cwd=shop, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # a terminal whose other end is closed reads as an error
            while block := os.read(ours, 65536):
                said += block
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0, said
    assert (b"publishing" in said) is drawn
    assert b"publishing" not in out
    assert b"\x1b" not in out
