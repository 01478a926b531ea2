"""What cuDF would refuse is refused on a machine without a GPU; ordinary calls pass, with the values of pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

from etl.core.schema import Field, Schema
from etl.engine.backends.pandas import PandasBackend
from tests.contract.calls import ORDINARY, PLANTED, shop, whole

if TYPE_CHECKING:
    from tests.contract.twins import Contract

pytestmark = [pytest.mark.gpuwheels, pytest.mark.filterwarnings("ignore:GPU-accelerated stable")]


@pytest.fixture
def contract() -> Contract:
    from tests.contract.twins import Contract

    return Contract()


def frame() -> pd.DataFrame:
    """The shop's rows as the pandas engine hands them to a function."""
    return PandasBackend().from_arrow(shop(), Schema(tuple(Field(one.name, one.type) for one in shop().schema)))


@pytest.mark.parametrize("what", ORDINARY)
def test_an_ordinary_call_is_accepted_and_has_the_value_of_pandas(what: str, contract: Contract) -> None:
    from tests.contract.twins import value_of

    made = ORDINARY[what](contract.twin(frame()), contract.module())
    alone = ORDINARY[what](frame(), pd)
    assert contract.steps or what == "column labels"
    if isinstance(alone, pd.DataFrame):
        pd.testing.assert_frame_equal(value_of(made), alone)
    elif isinstance(alone, pd.Series):
        # Twins have NULL where NumPy's floats have NaN for it: compared as Arrow, which has NULL for both.
        got, want = (repr(pa.Array.from_pandas(one).to_pylist()) for one in (value_of(made), alone))
        assert got == want


@pytest.mark.parametrize("what", PLANTED)
def test_what_cudf_refuses_or_understands_otherwise_is_caught(what: str, contract: Contract) -> None:
    from tests.contract.ghosts import ContractError

    with pytest.raises(ContractError):
        PLANTED[what](contract.twin(frame()), contract.module())


def test_an_error_has_cudfs_own_words(contract: Contract) -> None:
    from tests.contract.ghosts import ContractError

    with pytest.raises(ContractError, match=r"DataFrame\.merge: cuDF 26\.\d+\.\d+ refuses it: NotImplementedError"):
        PLANTED["merge(indicator=True)"](contract.twin(frame()), contract.module())


def test_the_surface_names_each_operation_once_with_its_keywords(contract: Contract) -> None:
    whole(contract.twin(frame()), contract.module())
    surface = contract.surface()
    assert surface["DataFrame.groupby"] == ["dropna", "sort"]
    assert surface["Series.str.extract"] == ["expand"]
    assert surface["to_datetime"] == ["format"]
    assert list(surface) == sorted(surface)


def test_most_steps_end_at_the_device_and_not_before(contract: Contract) -> None:
    for operation in ORDINARY.values():
        operation(contract.twin(frame()), contract.module())
    outcomes = [step.outcome for step in contract.steps]
    assert outcomes.count("device") > 40
    assert outcomes.count("host") > 40
    assert 0 < outcomes.count("static") < 5


def test_a_driver_would_be_noticed() -> None:
    from tests.contract.ghosts import means_no_driver

    outer = RuntimeError("while sorting")
    outer.__cause__ = OSError("libcudf: CUDA driver version is insufficient")
    assert means_no_driver(outer)
    looped: Any = ValueError("no such column")
    looped.__context__ = outer.__cause__.__class__("disk")
    looped.__context__.__context__ = looped
    assert not means_no_driver(looped)
