"""The command `cuetl`: its commands and flags, exit codes, and the last place where an error can be met.

Each command imports its layer when it runs, so that `--help` starts nothing.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from pathlib import Path  # noqa: TC003 - typer reads annotations at run time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from etl.core.errors import Cancelled, EtlError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

USAGE = 2
INTERRUPTED = 130

_CLICK_ERROR: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if issubclass(kind, Exception) and kind.__name__ == "ClickException"
)
"""Typer carries its own copy of Click (or, in older versions, imports Click): found from what it exports."""


class Once(TyperCommand):
    """A command whose flags may be given once; the ones that may be repeated say so in their help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, and refuse a flag that is given twice instead of taking the last value in silence."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        seen: set[str] = set()
        param: Any
        for param in order:
            if param.param_type_name != "option" or param.multiple or getattr(param, "is_flag", False):
                continue
            if param.name in seen:
                raise typer.BadParameter("it is given twice", ctx=ctx, param=param)
            seen.add(str(param.name))
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="cuetl",
    help="From databases to tensors and Parquet: one snapshot, parallel parts, exact values, one atomic publish.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"max_content_width": 110},
)
dataset = typer.Typer(
    help="Look at a dataset, verify its files, go through its versions.",
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"max_content_width": 110},
)
app.add_typer(dataset, name="dataset")

SOURCE = Annotated[str, typer.Argument(help="A URL (postgresql://…, sqlite:///path) or a connection of cuetl.toml.")]
JSON = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]
DEBUG = Annotated[bool, typer.Option("--debug", help="Show tracebacks and the logs of libraries.")]
TARGET = Annotated[str, typer.Argument(help="Folder of the dataset.", metavar="TARGET")]
DRY = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")]


@app.callback(invoke_without_command=True)
def root(*, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """From databases to tensors and Parquet: one snapshot, parallel parts, exact values, one atomic publish."""
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"cuetl {installed('cuetl')}")
        raise typer.Exit


@app.command(cls=Once, short_help="Publish a table or query as tensors or Parquet.")
def export(
    source: SOURCE,
    to: Annotated[list[str], typer.Option("--to", help="Folder of the dataset; may be repeated.", metavar="TARGET")],
    *,
    sql: Annotated[str | None, typer.Option("--sql", help="Query text, taken as written.")] = None,
    sql_file: Annotated[Path | None, typer.Option("--sql-file", help="A file with the query text.")] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help="A table, or a pattern such as 'sales.*'; may be repeated: one dataset each.",
            metavar="NAME",
        ),
    ] = None,
    format_: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            help="safetensors (default), parquet, npy, torch or tfrecord; one for each --to, in order.",
            metavar="FORMAT",
        ),
    ] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="Columns wanted, in order: a,b.")] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--types", help="Type of a column, such as v=decimal(38,18); may be repeated.", metavar="COLUMN=TYPE"
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="The first N rows, as one part.")] = None,
    features: Annotated[str | None, typer.Option("--features", help="Columns packed into the matrix x: a,b.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="Columns of y.")] = None,
    weight: Annotated[str | None, typer.Option("--weight", help="The column of w.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Columns that name a row.")] = None,
    order: Annotated[
        str | None, typer.Option("--order", help="Rows as the parts come (source), by --key (key), or shuffled.")
    ] = None,
    shuffle: Annotated[
        int | None, typer.Option("--shuffle", min=0, help="Seed of --order shuffle.", metavar="SEED")
    ] = None,
    layout: Annotated[str | None, typer.Option("--layout", help="columns or packed (default with --features).")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="dtype of x, or of float and decimal columns.")] = None,
    cast: Annotated[str, typer.Option("--cast", help="exact, round or saturate.")] = "exact",
    nulls: Annotated[str, typer.Option("--nulls", help="mask, error, drop or fill=VALUE.")] = "mask",
    special: Annotated[
        str | None, typer.Option("--special", help="Values an Arrow type cannot hold: error, null or clamp.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Splits by key: train=0.8,val=0.1,test=0.1.")] = None,
    split_key: Annotated[str | None, typer.Option("--split-key", help="The column that decides the split.")] = None,
    split_salt: Annotated[str | None, typer.Option("--split-salt", help="Another draw of the split.")] = None,
    partition_column: Annotated[
        str | None, typer.Option("--partition-column", help="Cut the source by this column.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Number of parts (default: by size).")
    ] = None,
    partition_bytes: Annotated[str, typer.Option("--partition-bytes", help="Size of a part in the source.")] = "128MiB",
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Workers (default: by cores).")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", help="Value of :NAME in the query; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="auto, cpu, gpu, or tcp://HOST:PORT (tls, ucx).")] = "auto",
    mode: Annotated[str, typer.Option("--mode", help="create, replace or append.")] = "create",
    no_count: Annotated[
        bool, typer.Option("--no-count", help="Leave out the one count of the whole source; parts are counted still.")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume", help="Take up the parts that a dead run finished, of a source that proves them unchanged."
        ),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would be done; read no data.")] = False,
    as_json: JSON = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no report.")] = False,
    debug: DEBUG = False,
) -> None:
    """Read a table or query in one snapshot and publish it as tensors or Parquet in one atomic step."""
    from etl.cli import export as command

    command.export(
        command.Flags(
            source=source,
            to=tuple(to),
            sql=sql,
            sql_file=sql_file,
            tables=tuple(table or ()),
            formats=tuple(format_ or ()),
            columns=columns,
            types=tuple(types or ()),
            limit=limit,
            features=features,
            target=target,
            weight=weight,
            key=key,
            order=order,
            shuffle=shuffle,
            layout=layout,
            dtype=dtype,
            cast=cast,
            nulls=nulls,
            special=special,
            split=split,
            split_key=split_key,
            split_salt=split_salt,
            partition_column=partition_column,
            partitions=partitions,
            partition_bytes=partition_bytes,
            workers=workers,
            params=tuple(param or ()),
            engine=engine,
            mode=mode,
            count=not no_count,
            resume=resume,
            plan=plan,
            as_json=as_json,
            quiet=quiet,
            debug=debug,
        )
    )


PIPELINE = Annotated[
    str,
    typer.Argument(
        help="file.py, file.py:name, or a name found in $CUETL_PIPELINES (default ./pipelines).", metavar="PIPELINE"
    ),
]
PARAMS = Annotated[
    list[str] | None,
    typer.Option("--param", help="Value of a parameter; may be repeated.", metavar="NAME=VALUE"),
]


@app.command("run", cls=Once, short_help="Run a pipeline.")
def run_pipeline(
    pipeline: PIPELINE,
    *,
    param: PARAMS = None,
    engine: Annotated[str, typer.Option("--engine", help="auto, cpu, gpu, or tcp://HOST:PORT (tls, ucx).")] = "auto",
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Workers (default: by cores).")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would be done; read no data.")] = False,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Take up the finished parts of that run.", metavar="RUN")
    ] = None,
    as_json: JSON = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no report.")] = False,
    debug: DEBUG = False,
) -> None:
    """Read a pipeline's sources, put them through its function, and publish its dataset in one atomic step."""
    from etl.cli import run as command

    command.run(
        command.Flags(
            pipeline=pipeline,
            params=tuple(param or ()),
            engine=engine,
            workers=workers,
            plan=plan,
            resume=resume,
            as_json=as_json,
            quiet=quiet,
            debug=debug,
        )
    )


@app.command(cls=Once, short_help="Check pipelines without reading their rows.")
def validate(
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(
            help="file.py, file.py:name or names (default: all in $CUETL_PIPELINES or ./pipelines).",
            metavar="[PIPELINE]...",
        ),
    ] = None,
    *,
    param: PARAMS = None,
    as_json: JSON = False,
    debug: DEBUG = False,
) -> None:
    """Hold that definitions load, connections answer, and schemas agree through every step. All problems are listed."""
    from etl.cli import validate as command

    raise typer.Exit(command.validate(tuple(pipelines or ()), tuple(param or ()), as_json=as_json, debug=debug))


@app.command(cls=Once, short_help="Show tables, or the columns and first rows of one.")
def inspect(
    source: SOURCE,
    *,
    table: Annotated[str | None, typer.Option("--table", help="A table.")] = None,
    sql: Annotated[str | None, typer.Option("--sql", help="Query text.")] = None,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Rows to look at.")] = 20,
    as_json: JSON = False,
    debug: DEBUG = False,
) -> None:
    """Show tables and sizes, or the columns of one with types, NULLs and a look at its rows. Nothing is written."""
    from etl.cli import inspect as command

    command.inspect(source, table=table, sql=sql, rows=rows, as_json=as_json, debug=debug)


@app.command(cls=Once)
def init(
    folder: Annotated[Path | None, typer.Argument(help="Folder to write into (default: here).")] = None,
    *,
    debug: DEBUG = False,
) -> None:
    """Write cuetl.toml, a pipeline that runs, a .gitignore. Files that exist are kept."""
    from etl.cli import init as command

    command.init(folder, debug=debug)


@app.command(cls=Once, short_help="Build a small shop and export from it.")
def demo(
    *,
    to: Annotated[str, typer.Option("--to", help="Folder for the shop and its datasets.")] = "cuetl-demo",
    as_json: JSON = False,
    debug: DEBUG = False,
) -> None:
    """Build a small SQLite shop, export tensors and Parquet from it, print what was made."""
    from etl.cli import demo as command

    command.demo(to, as_json=as_json, debug=debug)


@app.command(cls=Once, short_help="Check the installation and the connections.")
def doctor(
    *,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Ask every worker of this scheduler too.", metavar="ADDRESS")
    ] = None,
    as_json: JSON = False,
    debug: DEBUG = False,
) -> None:
    """Check Python, packages, drivers, connections, disk, memory and GPUs. Exit 1 when something must be mended."""
    from etl.cli import doctor as command

    raise typer.Exit(command.doctor(as_json=as_json, debug=debug, cluster=cluster))


@dataset.command("show", cls=Once)
def dataset_show(
    path: TARGET,
    *,
    version: Annotated[int | None, typer.Option("--version", help="An older version (default: the current).")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one self-contained page with plots.", metavar="FILE")
    ] = None,
    as_json: JSON = False,
    debug: DEBUG = False,
) -> None:
    """Show columns, their values, splits and versions."""
    from etl.cli import dataset as command

    command.show(path, version=version, html=html, as_json=as_json, debug=debug)


@dataset.command("verify", cls=Once)
def dataset_verify(
    path: Annotated[str, typer.Argument(help="Folder of the dataset.", metavar="TARGET")],
    *,
    by_size: Annotated[bool, typer.Option("--size", help="Compare sizes only, not SHA-256.")] = False,
    as_json: JSON = False,
    debug: DEBUG = False,
) -> None:
    """Compare every file with the manifest. Exit 4 names each file that differs."""
    from etl.cli import dataset as command

    command.verify(path, by_size=by_size, as_json=as_json, debug=debug)


@dataset.command("diff", cls=Once)
def dataset_diff(
    path: TARGET,
    first: Annotated[int | None, typer.Argument(help="A version (default: the parent of B).", metavar="A")] = None,
    second: Annotated[int | None, typer.Argument(help="A version (default: the current one).", metavar="B")] = None,
    *,
    max_psi: Annotated[
        float | None, typer.Option("--max-psi", help="Population stability index of a column: 0.1 small, 0.25 large.")
    ] = None,
    max_null_change: Annotated[
        float | None, typer.Option("--max-null-change", help="Change of the share of NULL, or of NaN: 0 to 1.")
    ] = None,
    max_mean_shift: Annotated[
        float | None, typer.Option("--max-mean-shift", help="Change of the mean, in standard deviations of A.")
    ] = None,
    max_spread_ratio: Annotated[
        float | None, typer.Option("--max-spread-ratio", help="Larger standard deviation over the smaller: from 1.")
    ] = None,
    max_new_categories: Annotated[
        int | None, typer.Option("--max-new-categories", help="Values of a column that only B has.")
    ] = None,
    max_gone_categories: Annotated[
        int | None, typer.Option("--max-gone-categories", help="Values of a column that only A has.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", help="Hold only this column to the limits (repeatable).", metavar="NAME"),
    ] = None,
    as_json: JSON = False,
    debug: DEBUG = False,
) -> None:
    """Compare two versions: columns, files, rows, statistics, drift. Exit 4 where a limit is passed."""
    from etl.cli import drift as command
    from etl.tensors.drift import Limits

    limits = Limits(
        psi=max_psi,
        null_change=max_null_change,
        mean_shift=max_mean_shift,
        spread_ratio=max_spread_ratio,
        new_categories=max_new_categories,
        gone_categories=max_gone_categories,
    )
    command.diff(path, limits, column or (), first=first, second=second, as_json=as_json, debug=debug)


@dataset.command("rollback", cls=Once)
def dataset_rollback(
    path: TARGET,
    *,
    version: Annotated[
        int | None, typer.Option("--version", help="The version to bring back (default: the parent).")
    ] = None,
    as_json: JSON = False,
    debug: DEBUG = False,
) -> None:
    """Publish a new version that is what an older one was."""
    from etl.cli import dataset as command

    command.rollback(path, version=version, as_json=as_json, debug=debug)


@dataset.command("vacuum", cls=Once)
def dataset_vacuum(
    path: TARGET,
    *,
    keep: Annotated[int, typer.Option("--keep", min=1, help="Versions whose data stay, from the newest.")] = 3,
    dry_run: DRY = False,
    as_json: JSON = False,
    debug: DEBUG = False,
) -> None:
    """Remove data of older versions and what dead runs left."""
    from etl.cli import dataset as command

    command.vacuum(path, keep=keep, dry_run=dry_run, as_json=as_json, debug=debug)


@dataset.command("compact", cls=Once)
def dataset_compact(path: TARGET, *, as_json: JSON = False, debug: DEBUG = False) -> None:
    """Join small files into larger ones, as a new version."""
    from etl.cli import dataset as command

    command.compact(path, as_json=as_json, debug=debug)


@dataset.command("erase", cls=Once)
def dataset_erase(
    path: TARGET,
    *,
    key: Annotated[
        list[str],
        typer.Option(
            "--key",
            help="VALUE of the key column, or a=1,b=2 of several; may be repeated.",
            metavar="VALUE",
        ),
    ],
    dry_run: DRY = False,
    as_json: JSON = False,
    debug: DEBUG = False,
) -> None:
    """Take every row with that key out of every version."""
    from etl.cli import dataset as command

    command.erase(path, key, dry_run=dry_run, as_json=as_json, debug=debug)


def main() -> None:
    """Entry point of the command: exits with the code of `interface.md`, and never with a traceback by itself."""
    signal.signal(signal.SIGTERM, _interrupt)
    # What start-up makes lives to the end: looking through it for garbage took a tenth of a small export.
    gc.set_threshold(100_000, 50, 50)
    # No linear algebra is done here; numpy's threads for it would spin for a while all the same.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # noqa: TID251 - set for numpy, not read
    # Arrow's other allocators keep a tenth more memory for nothing here: large buffers are our own.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # noqa: TID251 - set for Arrow, not read
    code = run(sys.argv[1:])
    if "multiprocessing.resource_tracker" in sys.modules:
        sys.exit(code)  # worker processes were started: what follows them up ends first
    # Everything is closed and written; taking the interpreter apart object by object took a quarter of a second.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def run(arguments: Sequence[str], /) -> int:
    """Run one command line and return its exit code: 0, 1, 2, 3, 4 or 130."""
    debug = "--debug" in arguments
    try:
        code = app(args=list(arguments), prog_name="cuetl", standalone_mode=False)
        sys.stdout.flush()
    except EtlError as error:
        return _fail(str(error), error, debug=debug, code=error.exit_code)
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains once more at its end
        return 0
    except _CLICK_ERROR as error:
        return _usage(error)
    except typer.Abort:
        return _interrupted()
    except Exception as error:  # noqa: BLE001 - the process edge: nothing may leave as a traceback
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return _fail(f"unexpected: {text}. --debug shows the traceback.", error, debug=debug, code=1)
    if code == INTERRUPTED:
        return _interrupted()
    return code if isinstance(code, int) else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _interrupted() -> int:
    _say(str(Cancelled("interrupted", hint="Nothing was published.")))
    return INTERRUPTED


def _usage(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")
        return USAGE
    text = error.format_message().removesuffix(".")
    text = text.replace("(Possible options: ", "(did you mean ").replace("No such option", "no such option")
    where = error.ctx.command_path if getattr(error, "ctx", None) is not None else "cuetl"
    _say(f"{text}. `{where} --help` lists the flags.")
    return USAGE


def _fail(text: str, error: BaseException, *, debug: bool, code: int) -> int:
    if debug:
        from etl.logs import traceback_text

        sys.stderr.write(traceback_text(error))
    _say(text)
    return code


def _say(text: str) -> None:
    from etl.logs import redact

    one_paragraph = " ".join(line.strip() for line in text.splitlines() if line.strip())
    sys.stderr.write(f"cuetl: {redact(one_paragraph)}\n")


if __name__ == "__main__":
    main()
