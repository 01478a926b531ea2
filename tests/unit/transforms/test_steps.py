"""Every step that there is: found by its name, by its kind in saved states, and complete as a contract asks."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest

from etl import transforms
from etl.transforms import KINDS, kind_of
from etl.transforms.base import Transform


@pytest.mark.parametrize("name", sorted(KINDS.values()))
def test_a_step_is_a_frozen_value_with_a_kind_of_its_name(name: str) -> None:
    step: Any = getattr(transforms, name)
    assert dataclasses.is_dataclass(step)
    step = cast("Any", step)
    assert step.__dataclass_params__.frozen
    assert step.kind == kind_of(name)
    assert KINDS[step.kind] == name
    for method in ("reads", "writes", "output_schema", "on_host"):
        assert hasattr(step, method), method
    assert all(one.init for one in dataclasses.fields(step)), "an argument that is not given cannot be saved"
    assert issubclass(step, object)
    assert Transform.__name__ not in [base.__name__ for base in step.__mro__], "contracts are met by shape"


@pytest.mark.parametrize("name", sorted({*transforms.__all__} - {*KINDS.values()}))
def test_what_looks_at_other_rows_is_a_frozen_value_that_a_function_calls(name: str) -> None:
    window: Any = getattr(transforms, name)
    assert window.__dataclass_params__.frozen
    assert "__call__" in vars(window)
    assert name in ("AsOf", "Lag", "Rolling")


def test_kinds_are_words_with_underscores() -> None:
    names = ("FillNull", "Log1p", "OneHot", "MinMax")
    assert [kind_of(name) for name in names] == [
        "fill_null",
        "log1p",
        "one_hot",
        "min_max",
    ]


def test_another_name_is_no_step() -> None:
    with pytest.raises(AttributeError, match="no attribute 'FillNil'"):
        transforms.FillNil  # noqa: B018 - what is looked for
