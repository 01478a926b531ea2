"""The words of the command line: what is meant is read exactly, what is not is refused and the flag is named."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.cli import words
from etl.core.errors import ConfigError


@given(
    number=st.integers(1, 10**6), unit=st.sampled_from(["", "B", "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB"])
)
def test_sizes_are_exact(number: int, unit: str) -> None:
    assert words.size(f"{number}{unit}", "--f") == number * words.UNITS[unit.lower()]
    assert words.size(f" {number} {unit.upper()} ", "--f") == number * words.UNITS[unit.lower()]


@pytest.mark.parametrize(("text", "count"), [("1.5KiB", 1536), ("0.5 MiB", 1 << 19), ("4096", 4096), ("1", 1)])
def test_sizes_with_fractions_and_without_units(text: str, count: int) -> None:
    assert words.size(text, "--f") == count


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1 XB", "MiB", "1.3", "0.0001KiB", "1e6", "nan", "\N{ARABIC-INDIC DIGIT ONE}", "1MiB 2"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--partition-bytes"):
        words.size(text, "--partition-bytes")


@given(st.lists(st.text("abc, XY_é", min_size=1).map(str.strip).filter(bool), min_size=1, max_size=5, unique=True))
def test_names_round_trip_whatever_they_hold(names: list[str]) -> None:
    written = ",".join(f'"{name}"' if "," in name else name for name in names)
    assert words.names(written, "--columns") == tuple(names)


@pytest.mark.parametrize("text", ["", " ", "a,,b", "a,", '"a', "a\nb"])
def test_lists_with_holes_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--columns"):
        words.names(text, "--columns")


def test_a_name_given_twice_is_named() -> None:
    with pytest.raises(ConfigError, match="--columns names b twice"):
        words.names("a,b, b", "--columns")


def test_assignments_split_at_the_first_equals_sign() -> None:
    assert words.assignments(["a=1", "b=x=y", "c="], "--param") == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("items", [["a"], ["=1"], [" =1"], ["a=1", "a=2"]])
def test_malformed_assignments_are_refused_without_their_values(items: list[str]) -> None:
    with pytest.raises(ConfigError, match="--param") as caught:
        words.assignments([*items, "z=kn4ry"], "--param")
    assert "kn4ry" not in str(caught.value)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6))
def test_shares_that_sum_to_one_exactly_are_taken(parts: list[int]) -> None:
    total = Decimal(10) ** 4
    cut = [Decimal(part) / total for part in parts]
    cut.append(1 - sum(cut, Decimal(0)))
    text = ",".join(f"s{index}={share}" for index, share in enumerate(cut))
    assert words.shares(text, "--split") == {f"s{index}": str(share) for index, share in enumerate(cut)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train=0.8,val=0.1", "sum to 0.9, not 1"),
        ("train=0.8,val=0.20000000000000000000000000000000000001", "not 1"),
        ("train=0.8,train=0.2", "names train twice"),
        ("train=1.0,val=0", "share of val is '0'"),
        ("train=1.2,val=-0.2", "share of train is '1.2'"),
        ("train=nan,val=1", "share of train is 'nan'"),
        ("train=most,val=1", "share of train is 'most'"),
        ("a/b=1", "is not made of letters"),
        ("_a=1", "is not made of letters"),
        ("train", "NAME=VALUE"),
    ],
)
def test_shares_that_are_wrong_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        words.shares(text, "--split")
    assert said in str(caught.value)
    assert "--split" in str(caught.value)
