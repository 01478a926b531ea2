"""Ring 1: each portable form gives its stated value on pandas, with NULL, NaN, no rows and nothing but NULL."""

from __future__ import annotations

import math
from typing import Any

import pytest

from etl.engine import frames
from etl.engine.backends import backend
from tests.values.replay import FOLDER, comparable, golden, result
from tests.values.transforms import OUTSIDE, TRANSFORMS, Transform, given, nulls, rows

PANDAS = backend("pandas")
each = pytest.mark.parametrize("one", TRANSFORMS, ids=[one.name for one in TRANSFORMS])


@each
def test_the_portable_form_gives_the_stated_value(one: Transform) -> None:
    made = result(PANDAS, one, rows())
    assert made.column_names == list(one.expect)
    for name, values in one.expect.items():
        got: list[Any] = made.column(name).to_pylist()
        want: list[Any] = list(values)
        if not one.order:
            got, want = sorted(got, key=repr), sorted(want, key=repr)
        if one.close:
            assert len(got) == len(want)
            for have, stated in zip(got, want, strict=True):
                assert have == stated or math.isclose(have, stated, rel_tol=one.close)
        else:
            assert repr(got) == repr(want), name


@each
def test_the_golden_is_what_pandas_gives(one: Transform) -> None:
    for table, kept in zip((rows(), nulls()), golden(one), strict=True):
        made = result(PANDAS, one, table)
        assert made.schema == kept.schema
        assert comparable(made, order=one.order) == comparable(kept, order=one.order)


@each
def test_no_rows_give_the_declared_columns(one: Transform) -> None:
    made = result(PANDAS, one, rows().slice(0, 0))
    assert made.schema == golden(one)[0].schema
    assert made.num_rows == 0


def test_every_difference_has_a_form_or_a_reason() -> None:
    met = {number for one in TRANSFORMS for number in one.differences}
    assert met | OUTSIDE.keys() == set(range(1, 89))
    assert not met & OUTSIDE.keys()


def test_every_golden_belongs_to_a_transform() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {one.name for one in TRANSFORMS}


@each
def test_a_transform_leaves_its_input_as_it_was(one: Transform) -> None:
    frame = PANDAS.from_arrow(rows(), given())
    one.function(frame, frames)
    assert comparable(PANDAS.to_arrow(frame, PANDAS.schema_of(frame, given())), order=True) == comparable(
        rows(), order=True
    )
