"""Parameters: text and Python values mean the same, and what is wrong is said in one go."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import ConfigError
from etl.planning.params import Parameter, checked, declared, path_text

ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-3))])
MOMENTS = st.datetimes(timezones=ZONES)
FLOATS = st.floats(allow_nan=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def typed(kind: Any, value: object) -> object:
    return checked(Parameter(kind), value)


@pytest.mark.parametrize(
    ("kind", "values", "written"),
    [
        (int, st.integers(), str),
        (float, FLOATS, repr),
        (float, st.integers(-(2**53), 2**53), str),
        (bool, st.booleans(), lambda v: str(v).lower()),
        (str, TEXTS, str),
        (date, st.dates(), str),
        (datetime, MOMENTS, str),
        (datetime, MOMENTS, datetime.isoformat),
        (Decimal, st.decimals(allow_nan=False, allow_infinity=False), str),
        (Literal["low", "high", 3], st.sampled_from(["low", "high", 3]), str),
        (list[int], st.lists(st.integers(), min_size=1), lambda v: ",".join(map(str, v))),
        (list[int], st.lists(st.integers()), json.dumps),
        (list[str], st.lists(TEXTS), json.dumps),
        (list[date], st.lists(st.dates(), min_size=1), lambda v: ", ".join(map(str, v))),
    ],
    ids=["int", "float", "float of ints", "bool", "str", "date", "datetime", "datetime with T", "Decimal", "Literal",
         "ints by commas", "ints as JSON", "texts", "dates"],
)  # fmt: skip
def test_text_and_python_value_give_the_same(kind: Any, values: st.SearchStrategy[Any], written: Any) -> None:
    @given(values)
    def same(value: Any) -> None:
        python, text = typed(kind, value), typed(kind, written(value))
        assert python == text == value
        assert type(python) is type(text)

    same()


@given(MOMENTS, st.sampled_from(["", "2026-02-30", "2026-1-1", "20260101", "1767225600", "yesterday"]))
def test_numbers_are_no_moments(at: datetime, text: str) -> None:
    for kind in (date, datetime):
        for wrong in (text, at.year, float(at.year)):
            with pytest.raises(ValueError, match="it is no date"):
                typed(kind, wrong)
    with pytest.raises(ValueError, match="a moment and no date"):
        typed(date, at)
    assert typed(datetime, "2026-01-31") == datetime(2026, 1, 31)  # noqa: DTZ001 - as written


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, True),
        (int, 1.0),
        (int, "2.0"),
        (int, "one"),
        (int, None),
        (float, False),
        (float, "much"),
        (bool, 1),
        (bool, "maybe"),
        (str, 5),
        (Decimal, "NaN"),
        (Literal["a", 1], "b"),
        (Literal["a", 1], True),
        (list[int], "1,x"),
        (list[int], "[1, 2"),
        (list[int], [1, True]),
        (list[int], 7),
    ],
)
def test_a_value_of_another_type_is_refused(kind: Any, value: object) -> None:
    with pytest.raises(ValueError, match="it "):
        typed(kind, value)


def test_floats_that_are_no_numbers_are_floats() -> None:
    assert math.isnan(float(str(typed(float, "nan"))))
    assert typed(float, "-inf") == -math.inf


def test_all_that_is_wrong_is_said_in_one_error() -> None:
    parameters = declared({"day": date, "rows": (int, 5), "mode": Literal["a", "b"], "late": False}, "pipeline churn")
    with pytest.raises(ConfigError) as caught:
        parameters.values({"rows": "many", "dya": "2026-01-01", "late": "maybe", "mode": "c"})
    assert str(caught.value) == (
        "pipeline churn: dya is unknown (Did you mean day?); day is missing (date); rows is 'many': it is no int; "
        "late is 'maybe': it is no bool; mode is 'c': it is not one of a, b. "
        "Give --param day=…, or day=… in Python."
    )
    assert parameters.values({"day": "2026-01-31", "mode": "b"}) == {
        "day": date(2026, 1, 31),
        "rows": 5,
        "mode": "b",
        "late": False,
    }


def test_a_default_list_is_nobodys_to_change() -> None:
    parameters = declared({"days": [1, 2]}, "pipeline churn")
    first = parameters.values({})
    assert isinstance(first["days"], list)
    first["days"].append(3)
    assert parameters.values({}) == {"days": [1, 2]}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"engine": str}, "no parameter can be named engine"),
        ({"workers": int}, "no parameter can be named workers"),
        ({"resume": str}, "no parameter can be named resume"),
        ({"record": bool}, "no parameter can be named record"),
        ({"a-b": int}, "'a-b' cannot be a parameter's name"),
        ({"class": int}, "'class' cannot be a parameter's name"),
        ({"day": dict}, "parameter day is dict, which is no type for one"),
        ({"day": list}, "parameter day is list, which is no type for one"),
        ({"day": None}, "parameter day is None, which is no type for one"),
        ({"day": []}, "parameter day is [], which is no type for one"),
        ({"day": (dict, {})}, "parameter day is dict, which is no type for one"),
        ({"day": (date, "soon")}, "the default of parameter day is 'soon': it is no date"),
        ({"n": (int, True)}, "the default of parameter n is True: it is no int"),
    ],
)
def test_a_bad_declaration_is_refused(params: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declared(params, "pipeline churn")
    assert str(caught.value).startswith(f"pipeline churn: {said}")


@given(st.one_of(TEXTS, MOMENTS, st.dates(), FLOATS, st.integers(), st.booleans()))
def test_no_value_makes_a_folder_of_its_own_in_a_path(value: object) -> None:
    assert not set(path_text(value)) & set('/\\:*?"<>|\0\n')


def test_moments_in_paths_are_in_utc() -> None:
    at = datetime(2026, 1, 31, 6, 30, tzinfo=timezone(timedelta(hours=2)))
    assert path_text(at) == path_text(at.astimezone(UTC)) == "2026-01-31T043000Z"
