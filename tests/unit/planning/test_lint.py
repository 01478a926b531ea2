"""Lines that pandas and cuDF understand differently: what is flagged, its rewrite, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.planning import lint

HEAD = """
import numpy as np
import pandas as pd
import dask.dataframe as dd
from etl import frames

"""
DTYPES = {"df": {"price": "double", "qty": "int32", "n": "int16", "big": "int64", "name": "string", "k": "uint8"}}


def rules(*lines: str, rowwise: bool = True, before: str = "") -> list[str]:
    """The rules against a function of a frame whose body is these lines."""
    body = "\n".join(f"    {line}" for line in lines)
    found = lint.check(f"{HEAD}{before}\ndef f(df, other):\n{body}\n", "f", rowwise=rowwise, dtypes=DTYPES)
    return [one.rule for one in found]


FLAGGED_AND_REWRITTEN = [
    ("L1", ["return df.groupby('name').size()"], ["return df.groupby('name', sort=True).size()"]),
    (
        "L2",
        ["df['name'] = df['name'].str.replace('.', '')", "return df"],
        ["df['name'] = df['name'].str.replace('.', '', regex=False)", "return df"],
    ),
    ("L3", ["return df[['qty', 'big']].apply(len)"], ["return df[['qty', 'big']].apply(len, axis=1)"]),
    (
        "L4",
        ["return df.groupby('name', sort=True)['qty'].sum()"],
        ["return df.groupby('name', sort=True)['qty'].sum(min_count=1)"],
    ),
    (
        "L5",
        ["m = df.merge(other, on='big')", "return m.head(3)"],
        ["m = df.merge(other, on='big')", "return m.sort_values('big', kind='stable').head(3)"],
    ),
    ("L5", ["return frames.concat([df, other])['qty'].shift(1)"], ["return df['qty'].shift(1)"]),
    (
        "L5",
        ["return df.groupby('name', sort=False).max().iloc[0]"],
        ["return df.groupby('name', sort=True).max().iloc[0]"],
    ),
    (
        "L5",
        ["return df.merge(other, on='big').groupby('name', sort=True).first()"],
        ["return df.merge(other, on='big').sort_values('big').groupby('name', sort=True).first()"],
    ),
    ("L6", ["return df[df['qty'] > 1]"], ["return df[(df['qty'] > 1).fillna(False)]"]),
    ("L6", ["return df[~df['qty'].gt(1)]"], ["return df[~df['qty'].gt(1).fillna(False)]"]),
    (
        "L6",
        ["keep = (df['qty'] > 1) & df['name'].isin(['a'])", "return df.loc[keep]"],
        ["keep = (df['qty'] > 1).fillna(False) & df['name'].isin(['a'])", "return df.loc[keep]"],
    ),
    (
        "L6",
        ["return df['price'].where(df['price'] > 0, 0.0)"],
        ["return df['price'].where((df['price'] > 0).fillna(False), 0.0)"],
    ),
    ("L7", ["return df['name'].str.contains(r'a(?=b)')"], ["return df['name'].str.contains(r'ab')"]),
    ("L7", ["return df['name'].str.match('(?i)a')"], ["return df['name'].str.match('[aA]')"]),
    ("L7", [r"return df['name'].str.contains(r'(a)\1')"], ["return df['name'].str.contains(r'aa')"]),
    ("L7", ["return df['name'].str.contains('[[:alpha:]]')"], ["return df['name'].str.contains('[a-z]')"]),
    ("L7", ["return df['name'].str.contains('a{,3}')"], ["return df['name'].str.contains('a{0,3}')"]),
    ("L7", [r"return df['name'].str.extract(r'(\d+)')"], ["return df['name'].str.extract('([0-9]+)')"]),
    (
        "L7",
        [r"return df['name'].str.replace(r'\s', '', regex=True)"],
        ["return df['name'].str.replace(' ', '', regex=True)"],
    ),
    ("L8", ["return frames.to_datetime(df['name'])"], ["return frames.to_datetime(df['name'], format='%Y')"]),
    ("L9", ["return df.merge(other, on='big', indicator=True)"], ["return df.merge(other, on='big')"]),
    ("L9", ["return df.merge(other, on='big', validate='1:1')"], ["return df.merge(other, on='big', validate=None)"]),
    ("L9", ["return df.sort_values('qty', key=abs)"], ["return df.sort_values('qty')"]),
    ("L9", ["df.sort_values('qty', inplace=True)", "return df"], ["df = df.sort_values('qty')", "return df"]),
    ("L9", ["return frames.concat([df, other], keys=['a', 'b'])"], ["return frames.concat([df, other])"]),
    (
        "L10",
        ["df['price'] = df['price'].fillna(0.0)", "return df"],
        ["df['price'] = frames.nan_to_null(df['price']).fillna(0.0)", "return df"],
    ),
    ("L10", ["return df.dropna(subset=['price'])"], ["return df.dropna(subset=['qty'])"]),
    (
        "L10",
        ["return df['price'] - df['price'].mean()"],
        ["df['price'] = frames.nan_to_null(df['price'])", "return df['price'] - df['price'].mean()"],
    ),
    ("L10", ["return df['qty'].astype('float64').max()"], ["return df['qty'].max()"]),
    ("L11", ["return df['qty'] / df['n']"], ["return df['qty'].astype('float64') / df['n'].astype('float64')"]),
    ("L11", ["return df['big'] // df['qty']"], ["return df['big'] // df['qty'].where((df['qty'] != 0).fillna(False))"]),
    (
        "L11",
        ["return df['big'] % df['qty']"],
        ["df = df[(df['qty'] != 0).fillna(False)]", "return df['big'] % df['qty']"],
    ),
    ("L12", ["return df['price'].astype('int64')"], ["return frames.to_int(df['price'], 'int64')"]),
    ("L12", ["return df['big'].astype('int16')"], ["return df['n'].astype('int64')"]),
    ("L12", ["return df.astype({'price': 'int32'})"], ["return df.astype({'qty': 'int64'})"]),
    ("L13", ["return df['t'] + pd.DateOffset(months=1)"], ["return df['t'] + frames.DateOffset(months=1)"]),
    (
        "L13",
        ["return pd.to_datetime(df['name'], format='%Y')"],
        ["return frames.to_datetime(df['name'], format='%Y')"],
    ),
    (
        "L14",
        ["df['x'] = np.where(df['name'].isna(), 1, 0)", "return df"],
        ["return df['qty'].where(df['name'].notna(), 0)"],
    ),
    ("L14", ["return np.select([df['qty'] > 0], [1])"], ["return np.log(df['price'])"]),
    ("L14", ["return df['qty'].values"], ["return df['qty']"]),
    ("L14", ["return df['qty'].tolist()"], ["return df['qty']"]),
    (
        "L14",
        ["for _, row in df.iterrows():", "    pass", "return df"],
        ["for name in df.columns:", "    pass", "return df"],
    ),
    ("L14", ["return [x for x in df['qty']]"], ["return [x for x in ('qty', 'big')]"]),
    ("L15", ["return pd.util.hash_pandas_object(df)"], ["return df"]),
    ("L15", ["return df.sample(n=3, random_state=1)"], ["return df.head(3)"]),
    ("L16", ["return df['qty'].astype('Float64')"], ["return df['qty'].astype('float64')"]),
    ("L16", ["frames.set_option('mode.pandas_compatible', True)", "return df"], ["return df"]),
    ("L17", ["start(jit_unspill=True)", "return df"], ["start(enable_cudf_spill=True)", "return df"]),
    (
        "L17",
        ["config = {'dataframe.query-planning': False}", "return df"],
        ["config = {'dataframe.shuffle': 1}", "return df"],
    ),
    ("L18", ["import cudf", "return df"], ["from etl import frames", "return df"]),
    ("L18", ["from dask_cudf import from_cudf", "return df"], ["from dask.dataframe import from_map", "return df"]),
]


@pytest.mark.parametrize(("rule", "flagged", "rewritten"), FLAGGED_AND_REWRITTEN)
def test_a_line_is_flagged_and_its_rewrite_is_not(rule: str, flagged: list[str], rewritten: list[str]) -> None:
    assert rules(*flagged) == [rule]
    assert rules(*rewritten) == []


def test_every_rule_has_a_line_that_breaks_it() -> None:
    assert {rule for rule, _, _ in FLAGGED_AND_REWRITTEN} == {f"L{n}" for n in range(1, 19)}


DASK_ONLY = [
    (["return df.groupby('name').size()"], [], ["L1"]),
    (["return df.merge(other, on='big').head(3)"], [], ["L5"]),
    (["if len(df):", "    return other", "return df"], ["L14"], []),
    (["return df.map_partitions(lambda part: part.groupby('name').max())"], ["L1"], ["L1"]),
]


@pytest.mark.parametrize(("lines", "on_dask", "on_plain"), DASK_ONLY)
def test_the_rules_on_order_are_silent_for_dask_collections(
    lines: list[str], on_dask: list[str], on_plain: list[str]
) -> None:
    assert rules(*lines, rowwise=False) == on_dask
    assert rules(*lines, rowwise=True) == on_plain


ORDINARY = [
    ["return df[df['name'].isin(['a', 'b'])]"],
    ["return df[df['name'].str.contains('[a-z]-[0-9]+')]"],
    ["return df[frames.is_null(df['price'])]"],
    ["return df.rename(columns={'qty': 'n_items'})[['n_items', 'price']]"],
    ["path = 'a.b'.replace('.', '/')", "return df.assign(path=path)"],
    ["config = {'a': 1}", "for key, value in config.items():", "    print(key, value)", "return df"],
    ["words = sorted({'b', 'a'})", "return df[words]"],
    ["rate = 7 // 2 + 7 % 2", "return df.assign(rate=rate)"],
    ["half = df['qty'] // 2", "return df.assign(half=half)"],
    ["return df.assign(total=df['qty'].astype('float64') * df['price'])"],
    ["return df['qty'].fillna(0)"],
    ["return df.assign(day=df['t'].dt.floor('D'), hour=df['t'].dt.hour)"],
    ["return df.sort_values(['big', 'qty'], kind='stable').drop_duplicates(subset=['big'], keep='first')"],
    ["first = [1, 2, 3]", "first.sort(key=abs)", "return df[first[0] > 0 and ['qty']]"],
    ["limit = 3", "if limit > 2:", "    df = df[['qty']]", "return df"],
    ["return df.merge(other, on='big', how='left').reset_index(drop=True)"],
    ["from itertools import groupby", "runs = [k for k, _ in groupby('aab')]", "return df[runs]"],
    ["text = r'\\d+(?=x)'", "import re", "re.compile(text)", "return df"],
    ["return df['name'].str.replace('(?=', '', regex=False)"],
    ["return df['unknown'].astype('int32')"],
    ["return df['unknown'].fillna(0)"],
    ["return df['unknown'] / df['other']"],
    ["return df.assign(positive=df['qty'] > 0)"],
    ["sums = df.groupby('name', sort=True).agg(n=('qty', 'sum'), p=('price', 'max'))", "return sums.reset_index()"],
    ["class Box:", "    values = 3", "return df.assign(x=Box.values)"],
    ["return df.clip(lower=0)"],
    ["scale = max(df.shape)", "return df[['qty']] * scale"],
    ["return df.assign(k=df['k'].astype('int16'))"],
    ["options = dict(on='big')", "return df.merge(other, **options)"],
    ["options = dict(sort=True)", "return df.groupby('name', **options).max()"],
]


@pytest.mark.parametrize("lines", ORDINARY)
@pytest.mark.parametrize("rowwise", [True, False])
def test_ordinary_lines_are_left_alone(lines: list[str], rowwise: bool) -> None:  # noqa: FBT001
    assert rules(*lines, rowwise=rowwise) == []


def test_functions_that_are_called_are_looked_at_where_they_stand() -> None:
    before = "def ranked(frame):\n    return frame.groupby('name').size()\n\ndef unused(x):\n    return x.groupby(1)\n"
    source = f"{HEAD}{before}\ndef f(df):\n    return ranked(df[['name']])\n"
    (one,) = lint.check(source, "f", rowwise=True)
    assert (one.rule, source.splitlines()[one.line - 1].strip()) == ("L1", "return frame.groupby('name').size()")
    assert str(one).startswith(f"line {one.line}: L1: groups have the order")
    assert "sort=True" in str(one)


def test_a_function_that_calls_itself_ends() -> None:
    source = "def f(df):\n    return f(df[df['a'] > 1])\n"
    assert [one.rule for one in lint.check(source, "f", rowwise=True)] == ["L6"]


def test_a_pipelines_decorator_says_what_its_function_gets() -> None:
    body = "def f(orders):\n    return orders.groupby('name').size()\n"
    assert lint.check(f"@pipeline(sources={{}}, sink=None)\n{body}", "f") == []
    assert [one.rule for one in lint.check(f"@etl.pipeline(rowwise=True)\n{body}", "f")] == ["L1"]
    assert [one.rule for one in lint.check(body, None)] == ["L1"]


@pytest.mark.parametrize(
    ("signature", "found"),
    [
        ("def f(t, xd)", ["L1"]),
        ("def f(t: Any, xd: Any)", ["L1"]),
        ("def f(frame: Any)", ["L1"]),
        ("def f(t: pd.DataFrame)", ["L1"]),
        ("def f(t: Plan)", []),
        ("def f(t: Any)", []),
    ],
)
def test_in_a_file_without_pipelines_frames_are_known_by_their_names(signature: str, found: list[str]) -> None:
    word = "frame" if "frame" in signature else "t"
    line = f"{signature}:\n    return {word}.groupby('name').size()\n"
    assert [one.rule for one in lint.check(line, None)] == found
    method = f"class Step:\n    {line.replace('(', '(self, ', 1).replace('    return', '        return')}"
    assert [one.rule for one in lint.check(method, None)] == found


def test_a_line_with_a_reason_is_left_out() -> None:
    line = "return df.groupby('name').size()  # frames: L1 the caller sorts"
    assert rules(line) == []
    assert rules(line.replace("L1", "L2")) == ["L1"]


def test_a_pattern_in_a_constant_of_the_file_is_read() -> None:
    line = "return df['name'].str.contains(DIGITS)"
    assert rules(line, before="DIGITS = r'\\d+'\n") == ["L7"]
    assert rules(line, before="DIGITS = '[0-9]+'\n") == []


def test_a_function_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LookupError, match="no function g"):
        lint.check("def f(df):\n    return df\n", "g")


@given(st.text(alphabet="abz09-_ .^$*+?|[](){},:=!<>\\dDwWsSpPzi#'", max_size=12))
def test_any_pattern_is_judged_without_an_error(pattern: str) -> None:
    assert set(rules(f"return df['name'].str.contains({pattern!r})")) <= {"L7"}


def test_any_python_is_gone_through_without_an_error() -> None:
    root = Path(__file__).resolve().parents[3]
    for path in [*(root / "etl").rglob("*.py"), *(root / "tests/unit").rglob("*.py")]:
        for one in lint.check(path.read_text(), None):
            assert one.rule in {f"L{n}" for n in range(1, 19)}
            assert one.line >= 1
