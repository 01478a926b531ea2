"""Power against 120 decimal digits: the likeliest power, and numbers near each other however far from 0 they are."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.core.errors import CastError
from etl.transforms import Power
from etl.transforms import powers as module
from etl.transforms.fit import applied
from etl.transforms.host import Rows
from tests.preparing import fit, through

Method = Literal["yeo-johnson", "box-cox"]
ZERO = Decimal(0)


def exact(value: float | Decimal, method: Method, power: Decimal) -> Decimal:
    """The power of a number as its definition has it."""
    x = Decimal(value)
    if method == "yeo-johnson" and x < 0:
        return -exact(1 - x, "box-cox", 2 - power)
    if method == "yeo-johnson":
        x += 1
    return x.ln() if not power else ((x.ln() * power).exp() - 1) / power


def likelihood(values: list[float], method: Method, power: Decimal) -> tuple[Decimal, list[Decimal]]:
    """Of a power, and the numbers standardized."""
    made = [exact(one, method, power) for one in values]
    n = len(made)
    mean = sum(made, ZERO) / n
    variance = sum(((one - mean) ** 2 for one in made), ZERO) / n
    logs = ZERO
    for one in map(Decimal, values):
        logs += (1 + abs(one)).ln().copy_sign(one) if method == "yeo-johnson" else one.ln()
    return -variance.ln() * n / 2 + (power - 1) * logs, [(one - mean) / variance.sqrt() for one in made]


offsets = st.sampled_from([0.0, 1.0, 1e5, 1e12])
scales = st.sampled_from([1e-3, 1.0, 1e3])


@pytest.mark.parametrize("method", ["yeo-johnson", "box-cox"])
@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=3, max_size=6, unique=True), offsets, scales, st.sampled_from([1, -1, 0]))
def test_the_power_is_the_likeliest_whatever_offset_and_scale(
    method: Method, small: list[int], offset: float, scale: float, side: int
) -> None:
    values = [offset + one * scale for one in small]
    if method == "yeo-johnson":  # above 0, below, and on both sides
        values = [one * (side or (-1) ** at) for at, one in enumerate(values)]
    if len({*values}) < len(values):
        return
    table = pa.table({"v": pa.array(values, pa.float64())})
    _, states = fit([Power("v", method)], table, (1,))
    found = states[0]["v"]
    with localcontext(Context(prec=120)):
        chosen, scaled = likelihood(values, method, Decimal(round(found["lambda"] * 20)) / 20)
        best = max(likelihood(values, method, Decimal(step) / 20)[0] for step in range(-80, 81, 20))
        assert chosen >= best - Decimal("1e-7")
    out = through([Power("v", method)], table, (1,)).column("v").to_pylist()
    assert out == pytest.approx([float(one) for one in scaled], rel=1e-6, abs=1e-6)


@settings(max_examples=20)
@pytest.mark.parametrize("method", ["yeo-johnson", "box-cox"])
@given(
    st.lists(st.floats(1e-9, 1e9) | st.floats(1e6, 1e6 + 1), min_size=2, max_size=40),
    st.lists(st.integers(0, 40), max_size=4),
    st.sampled_from([3, 1 << 14]),
)
def test_moments_do_not_depend_on_parts(method: Method, values: list[float], cuts: list[int], chunk: int) -> None:
    if method == "yeo-johnson":
        values = [one - 5.0 if at % 2 else one for at, one in enumerate(values)]
    numbers = np.array(values)
    whole = module.observed(numbers, method)
    parts = module.nothing()
    for one in np.split(numbers, sorted(min(c, len(values)) for c in cuts)):
        part = module.nothing()
        for start in range(0, len(one), chunk):
            part = module.merged_powers(part, module.observed(one[start : start + chunk], method), method)
        parts = module.merged_powers(parts, part, method)
    left, right = module.likeliest(whole, method), module.likeliest(parts, method)
    if left["lambda"] != right["lambda"]:
        return  # two powers are as likely to ten digits
    near = 1e-10 * max(left["std"], 1e-300)
    assert right["std"] == pytest.approx(left["std"], rel=1e-10, abs=0)
    assert right["mean"] == pytest.approx(left["mean"], rel=1e-10, abs=max(near, abs(left["mean"]) * 1e-10))
    assert right["center"] == pytest.approx(left["center"], rel=1e-12, abs=1e-15)


@given(st.floats(-4, 4), st.floats(0.01, 1e6), st.lists(st.floats(-1e6, 1e6), max_size=9), st.sampled_from([1, -1]))
def test_powers_in_relation_to_a_number_are_plain_ones_moved_and_stretched(
    power: float, center: float, values: list[float], side: int
) -> None:
    numbers = np.array([*values, side * center])
    plain = module.bent(numbers, "yeo-johnson", power, 0.0)
    moved = module.bent(numbers, "yeo-johnson", power, side * center)
    assert moved[-1] == 0
    stretched = (plain - plain[-1]) * (1 + center) ** -(power if side > 0 else 2 - power)
    assert moved == pytest.approx(stretched, rel=1e-7, abs=1e-9 * max(1.0, float(np.max(np.abs(stretched)))))


def test_many_rows_are_taken_chunk_by_chunk() -> None:
    numbers = np.random.default_rng(1).gamma(2.0, 3.0, 3 * module.CHUNK + 5)
    table = pa.table({"v": pa.array(numbers)})
    _, states = fit([Power("v", "box-cox")], table, batch_rows=1 << 20)
    bent = module.bent(numbers, "box-cox", states[0]["v"]["lambda"], states[0]["v"]["center"])
    assert states[0]["v"]["mean"] == pytest.approx(float(bent.mean()), rel=1e-10)
    assert states[0]["v"]["std"] == pytest.approx(float(bent.std()), rel=1e-10)
    assert states[0]["v"]["lambda"] in (0.3, 0.35)


@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.decimal128(9, 2), pa.uint8()])
def test_numbers_of_every_type(kind: pa.DataType) -> None:
    table = pa.table({"v": pa.array([1, 2, None, 4, 9], pa.int64()).cast(pa.string()).cast(kind)})
    out: list[Any] = through([Power("v", "box-cox", standardize=False)], table, (2,)).column("v").to_pylist()
    power = fit([Power("v", "box-cox")], table)[1][0]["v"]["lambda"]
    right = [None if v is None else float(exact(v, "box-cox", Decimal(power))) for v in (1, 2, None, 4, 9)]
    assert [v for v in out if v is not None] == pytest.approx([v for v in right if v is not None], rel=1e-6)
    assert out[2] is None


def test_a_power_beyond_float64_is_refused() -> None:
    plan, states = fit([Power("v", standardize=False)], pa.table({"v": [0.0, 5.0, 7.0, 8.0, 8.5, 8.7]}))
    assert states[0]["v"]["lambda"] > 1
    (batch,) = pa.table({"v": [1.0, 1e300]}).to_batches()
    with pytest.raises(CastError, match="column v, row 2: its bent value inf is beyond float32"):
        applied(plan, states, Rows.of_batch(batch, plan.given))
    (batch,) = pa.table({"v": [-math.inf, math.inf, math.nan]}).to_batches()
    out = applied(plan, states, Rows.of_batch(batch, plan.given))["v"].data
    assert [*map(repr, out.tolist())] == ["-inf", "inf", "nan"]
