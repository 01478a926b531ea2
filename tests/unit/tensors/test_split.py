"""The split recipe's golden vectors, and that it depends on nothing but key and salt."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.errors import CastError, ConfigError
from etl.core.schema import Field, Schema
from etl.tensors.hashing import first_words
from etl.tensors.split import SplitRecipe, cumulative_bounds, key_column

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns


FRACTIONS = ("0.8", "0.1", "0.1")


def sides(names: tuple[str, ...], *columns: Any, salt: str = "", **more: bool | str) -> list[int]:
    recipe = SplitRecipe(("a", "b", "c"), cumulative_bounds(FRACTIONS), names, salt, **more)  # type: ignore[arg-type]
    found: list[int] = recipe.assign(
        pa.RecordBatch.from_arrays(list(columns), names=list(names)), "partition 3"
    ).tolist()
    return found


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("|2:42", "36ad629ff338e449"),
        ("|2:-1", "1069016dc5e27832"),
        ("|5:café", "d1c3fb977de9f702"),
        ("2026|2:42", "aa03582d606e33b9"),
        ("|2:121:3", "26631e58b171dac8"),
        ("|1:12:23", "c37f1488a1872255"),
    ],
)
def test_golden_messages_have_their_words(message: str, word: str) -> None:
    assert f"{int(first_words([message.encode()])[0]):016x}" == word


def test_golden_keys_land_in_their_splits() -> None:
    assert sides(("k",), pa.array([42, -1])) == [0, 0]
    assert sides(("k",), pa.array(["café", "cafe\u0301"])) == [1, 1]
    assert sides(("k",), pa.array([42]), salt="2026") == [0]
    assert sides(("k", "l"), pa.array([12, 1]), pa.array([3, 23])) == [0, 0]


def test_a_first_column_does_not_run_into_the_second() -> None:
    texts = [pa.array(["1", "11"]), pa.array(["11", "1"])]
    assert len({int(first_words([b"|1:12:11"])[0]), int(first_words([b"|2:111:1"])[0])}) == 2
    assert len(sides(("k", "l"), *texts)) == 2


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([True, False]), [b"true", b"false"]),
        (pa.array([Decimal("1.10"), Decimal("42.00"), Decimal("-0.00")]), [b"1.1", b"42", b"0"]),
        (pa.array([Decimal("1E+3")], pa.decimal128(10, 0)), [b"1000"]),
        (pa.array([b"\x00\xff"]), [b"00ff"]),
        (pa.array([uuid.UUID(int=1).bytes], pa.binary(16)), [b"00000000-0000-0000-0000-000000000001"]),
        (pa.array([20454, -719529], pa.int32()).view(pa.date32()), [b"2026-01-01", b"-0001-12-31"]),
        (
            pa.array([1767323045000006], pa.int64()).view(pa.timestamp("us", "UTC")),
            [b"2026-01-02T03:04:05.000006Z"],
        ),
        (pa.array([0.0, -0.0, 0.1]), [b"0.0", b"0.0", b"0.1"]),
        (pa.array([2**63], pa.uint64()), [b"9223372036854775808"]),
        (pa.array([-(2**63)]), [b"-9223372036854775808"]),
    ],
    ids=["bool", "decimal", "decimal0", "bytes", "uuid", "date", "timestamp", "float", "uint64", "int64"],
)
def test_key_texts_follow_the_table(values: Any, texts: list[bytes]) -> None:
    assert key_column(values).to_pylist() == texts


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=60), st.integers(0, 60), st.data())
def test_a_row_never_moves_when_rows_are_reordered_or_cut(
    keys: list[int | None], cut: int, data: st.DataObject
) -> None:
    whole = sides(("k",), pa.array(keys, pa.int64()), null_key="own_group")
    order = data.draw(st.permutations(range(len(keys))))
    moved = sides(("k",), pa.array([keys[i] for i in order], pa.int64()), null_key="own_group")
    assert [whole[i] for i in order] == moved
    head = sides(("k",), pa.array(keys[:cut], pa.int64()), null_key="own_group")
    tail = sides(("k",), pa.array(keys, pa.int64()).slice(cut), null_key="own_group")
    assert head + tail == whole


@given(st.lists(st.tuples(st.text(max_size=4), st.integers(-5, 5)), max_size=40))
def test_two_columns_agree_with_one_key_at_a_time(keys: list[tuple[str, int]]) -> None:
    both = sides(("k", "l"), pa.array([k for k, _ in keys], pa.string()), pa.array([v for _, v in keys], pa.int64()))
    single = [sides(("k", "l"), pa.array([k], pa.string()), pa.array([v], pa.int64()))[0] for k, v in keys]
    assert both == single


def test_dictionary_and_plain_text_keys_agree() -> None:
    plain = pa.array(["a", "b", "a", "c"])
    assert sides(("k",), plain) == sides(("k",), plain.dictionary_encode())


def test_a_null_key_is_refused_or_a_group_of_its_own() -> None:
    with pytest.raises(CastError, match=r"the split key k is NULL in 1 of 2 rows looked at in partition 3"):
        sides(("k",), pa.array([1, None]))
    assert len(set(sides(("k",), pa.array([None] * 9, pa.int64()), null_key="own_group"))) == 1


def test_shares_are_near_the_fractions() -> None:
    counts = np.bincount(sides(("k",), pa.array(range(20_000))), minlength=3) / 20_000
    assert np.abs(counts - [0.8, 0.1, 0.1]).max() < 0.01


@pytest.mark.parametrize(
    "fractions", [("0.8", "0.1"), ("0.5", "0.6"), ("1.0", "0"), ("x", "1"), ("nan", "1"), ("1.5", "-0.5")]
)
def test_fractions_must_be_positive_and_sum_to_one(fractions: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        cumulative_bounds(fractions)


def test_thirds_written_in_decimals_do_not_pass_for_one() -> None:
    with pytest.raises(ConfigError, match=r"sum to 0\.99"):
        cumulative_bounds(("0.33", "0.33", "0.33"))
    assert cumulative_bounds(("0.1",) * 10)[-1] == 2**64


def test_float_keys_are_refused_unless_allowed() -> None:
    schema = Schema((Field("f", pa.float64()),))
    recipe = SplitRecipe(("a",), (2**64,), ("f",))
    with pytest.raises(ConfigError, match="float cannot be a split key"):
        recipe.check(schema)
    SplitRecipe(("a",), (2**64,), ("f",), allow_float=True).check(schema)
    assert sides(("f",), pa.array([0.0]), allow_float=True) == sides(("f",), pa.array([-0.0]), allow_float=True)
