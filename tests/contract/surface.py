"""What our transforms and pipelines use of cuDF: `python -m tests.contract.surface` in .gpu writes surface.json anew.

The file is compared in CI and replayed on a device: a call that is not in it was never checked.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from etl.core.schema import Field, Schema
from etl.engine import frames
from etl.engine.backends.pandas import PandasBackend
from tests.values.transforms import TRANSFORMS, given, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.contract.twins import Contract

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).parent / "surface.json"

TABLES: Mapping[str, Mapping[str, pa.DataType]] = {
    "shop_features": {
        "order_id": pa.int64(),
        "user_id": pa.int64(),
        "qty": pa.int64(),
        "price": pa.decimal128(10, 2),
        "discount": pa.decimal128(4, 2),
        "ordered_at": pa.timestamp("us"),
        "gift": pa.bool_(),
        "list_price": pa.decimal128(10, 2),
        "weight": pa.float64(),
    },
    "orders": {"order_id": pa.int64(), "user_id": pa.int64(), "ordered_at": pa.timestamp("us"), "gift": pa.bool_()},
    "shipments": {
        "order_id": pa.int64(),
        "user_id": pa.int64(),
        "qty": pa.int64(),
        "price": pa.decimal128(10, 2),
        "shipped_on": pa.date32(),
    },
}
"""Columns of the sources of `pipelines/`, as the demo shop's SQLite gives them."""


def table(columns: Mapping[str, pa.DataType]) -> pa.Table:
    """Rows of these columns: one of ones, one of NULL."""
    ones = [Decimal(1) if pa.types.is_decimal(kind) else pa.types.is_boolean(kind) or 1 for kind in columns.values()]
    made = [pa.array([one, None], kind) for one, kind in zip(ones, columns.values(), strict=True)]
    return pa.table(made, names=list(columns))


def frame(columns: Mapping[str, pa.DataType]) -> Any:
    """The same rows as the pandas engine hands them over."""
    schema = Schema(tuple(Field(name, kind) for name, kind in columns.items()))
    return PandasBackend().from_arrow(table(columns), schema)


def defined(name: str) -> Any:
    """What a file of `pipelines/` defines under its own name."""
    path = ROOT / "pipelines" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"contract_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def functions() -> list[tuple[str, Callable[..., Any], tuple[Mapping[str, pa.DataType], ...]]]:
    """The functions of `pipelines/`, each with the columns of its sources."""
    found = []
    for path in sorted((ROOT / "pipelines").glob("*.py")):
        one = defined(path.stem)
        if one.function is not None:
            names = [path.stem] if path.stem in TABLES else list(one.pipeline.sources)
            found.append((path.stem, one.function, tuple(TABLES[name] for name in names)))
    return found


def used(contract: Contract) -> dict[str, list[str]]:
    """Run all of it on twins; what it used."""
    for one in TRANSFORMS:
        one.function(contract.twin(PandasBackend().from_arrow(rows(), given())), frames)
    for _, function, tables in functions():
        function(*[contract.twin(frame(columns)) for columns in tables])
    return contract.surface()


def written(surface: Mapping[str, list[str]]) -> str:
    """As the file has it: a line for each operation."""
    lines = [f"  {json.dumps(path)}: {json.dumps(words)}" for path, words in surface.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Write the file."""
    from tests.contract.twins import Contract, answer_for_twins

    warnings.filterwarnings("ignore", message="GPU-accelerated stable")
    contract = Contract()
    answer_for_twins(setattr, contract)
    FILE.write_text(written(used(contract)))
    sys.stdout.write(f"{len(contract.surface())} operations in {len(contract.steps)} steps\n")


if __name__ == "__main__":
    main()
