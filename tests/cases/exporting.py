"""Whole exports by the command's own entry point, read back by the libraries that users read with.

They run in this process, a second faster each than a command of their own; `tests/integration/test_cli_*.py` hold the
command itself.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from etl import settings
from etl.cli import main
from tests.command import Done, one_paragraph

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Exports:
    """Exports of one connection, named `db` in a configuration of their own."""

    home: Path
    url: str

    def run(self, *arguments: str, to: str = "out") -> Done:
        """`cuetl export db … --to` a folder of the home."""
        (self.home / "cuetl.toml").write_text(f'[connections.db]\nurl = "{self.url}"\n')
        settings.settings.cache_clear()  # a command reads its configuration once
        out, err = io.StringIO(), io.StringIO()
        words = ["export", "db", *arguments, "--to", to, "--json"]
        with contextlib.chdir(self.home), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main.run(words)
        return Done(code, out.getvalue(), err.getvalue())

    def done(self, *arguments: str, to: str = "out") -> dict[str, Any]:
        """What a run that succeeds says."""
        ended = self.run(*arguments, to=to)
        assert ended.code == 0, ended.err
        return ended.json

    def table(self, *arguments: str, to: str = "out") -> pa.Table:
        """The rows of a Parquet export."""
        self.done(*arguments, "--format", "parquet", to=to)
        return pq.read_table(self.home / to)

    def rows(self, *arguments: str, to: str = "out") -> list[tuple[Any, ...]]:
        """The same as tuples, in the order of their text."""
        table = self.table(*arguments, to=to)
        rows = list(zip(*(c.to_pylist() for c in table.columns), strict=True))
        return sorted(rows, key=repr)

    def tensors(self, *arguments: str, to: str = "out") -> dict[str, NDArray[np.generic]]:
        """The tensors of a safetensors export of one file."""
        self.done(*arguments, "--format", "safetensors", to=to)
        (path,) = (self.home / to).glob("*.safetensors")
        found: dict[str, NDArray[np.generic]] = load_file(path)
        return found

    def refused(self, *arguments: str, code: int = 1, to: str = "out") -> str:
        """The one paragraph of an export that fails and publishes nothing."""
        ended = self.run(*arguments, to=to)
        assert ended.code == code, ended.err
        assert not (self.home / to).exists()
        return one_paragraph(ended.err)
