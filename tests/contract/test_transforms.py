"""Ring 1's transforms once more on twins: cuDF accepts each of their steps, and its own lines give the same values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etl.engine import frames
from etl.engine.backends.pandas import PandasBackend
from tests.values.replay import comparable, golden
from tests.values.transforms import TRANSFORMS, Transform, given, nulls, rows

if TYPE_CHECKING:
    import pyarrow as pa

    from tests.contract.twins import Contract

pytestmark = [pytest.mark.gpuwheels, pytest.mark.filterwarnings("ignore:GPU-accelerated stable")]
PANDAS = PandasBackend()


@pytest.fixture
def contract(monkeypatch: pytest.MonkeyPatch) -> Contract:
    from tests.contract.twins import Contract, answer_for_twins

    made = Contract()
    answer_for_twins(monkeypatch.setattr, made)
    return made


def through(one: Transform, table: pa.Table, contract: Contract) -> pa.Table:
    """The transform on twins; the pandas side of what came out, as Arrow of the golden's schema."""
    from tests.contract.twins import value_of

    made = value_of(one.function(contract.twin(PANDAS.from_arrow(table, given())), frames))
    return PANDAS.to_arrow(made, PANDAS.schema_of(made, given()))


@pytest.mark.parametrize("one", TRANSFORMS, ids=[one.name for one in TRANSFORMS])
def test_cudf_accepts_the_portable_form(one: Transform, contract: Contract) -> None:
    for table, kept in zip((rows(), nulls()), golden(one), strict=True):
        made = through(one, table, contract)
        assert made.column_names == kept.column_names
        if not one.close:
            assert comparable(made, order=one.order) == comparable(kept, order=one.order)
    assert contract.steps
