"""The decoder alone: bytes in, Arrow out, whatever the cuts; damaged bytes are errors and nothing worse."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import Tally
from connectors.postgresql.columns import ColumnPlan, Kind
from connectors.postgresql.copy import Decoder
from etl.core.errors import CastError, DataError, EtlError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.base import Special

HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END = b"\xff\xff"
ITEM = ColumnPlan("item", Kind.TEXT, pa.string())
BOUND = ColumnPlan("bound", Kind.INT4, pa.int32())
RANGE = pa.struct(
    [("lower", pa.int32()), ("upper", pa.int32()), ("li", pa.bool_()), ("ui", pa.bool_()), ("empty", pa.bool_())]
)
PLANS = (
    ColumnPlan("id", Kind.INT4, pa.int32()),
    ColumnPlan("big", Kind.INT8, pa.int64()),
    ColumnPlan("flag", Kind.BOOL, pa.bool_()),
    ColumnPlan("text", Kind.TEXT, pa.string()),
    ColumnPlan("small", Kind.NUMERIC, pa.decimal128(10, 2)),
    ColumnPlan("wide", Kind.NUMERIC, pa.decimal256(60, 10)),
    ColumnPlan("mood", Kind.ENUM, pa.dictionary(pa.int32(), pa.string()), vocabulary=("sad", "ok")),
    ColumnPlan("list", Kind.ARRAY, pa.list_(pa.string()), depth=1, children=(ITEM,)),
    ColumnPlan("range", Kind.RANGE, RANGE, children=(BOUND,)),
    ColumnPlan("json", Kind.JSONB, pa.string()),
    ColumnPlan("hex", Kind.HEX, pa.string()),
    ColumnPlan("vector", Kind.VECTOR, pa.list_(pa.float32(), 2)),
    ColumnPlan("net", Kind.INET, pa.string()),
)


def field(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def number(digits: Sequence[int], weight: int, sign: int = 0, scale: int = 2) -> bytes:
    return struct.pack(f">hhHh{len(digits)}h", len(digits), weight, sign, scale, *digits)


def row(n: int) -> bytes:
    null = n % 5 == 3
    items = [f"item {i}".encode() for i in range(n % 4)]
    array = struct.pack(">iii", bool(items), 0, 25) + (struct.pack(">ii", len(items), 1) if items else b"")
    fields = (
        struct.pack(">i", n),
        struct.pack(">q", -n),
        bytes([n % 2]),
        f"Zz\0{'ü' * (n % 41)}".encode(),
        number((n, 5000), 0),
        number((12, n, 0, 77), 2, 0x4000),
        b"ok",
        array + b"".join(map(field, items)),
        b"\x01" if n % 3 == 0 else b"\x02" + field(struct.pack(">i", n)) + field(struct.pack(">i", n + 1)),
        b'\x01{"a": 1}',
        bytes([n % 256, 255]),
        struct.pack(">hhff", 2, 0, n, 0.5),
        bytes([2, 24, 0, 4, 10, 0, 0, n % 256]),
    )
    return struct.pack(">h", len(fields)) + b"".join(field(None if null and i else f) for i, f in enumerate(fields))


def payload(rows: int) -> list[bytes]:
    """Messages as the server makes them: the head goes with the first row."""
    return [HEAD + row(0), *map(row, range(1, rows)), END]


def framed(messages: Sequence[bytes]) -> bytes:
    return (
        b"H"
        + struct.pack(">ib", 7, 1)
        + b"\0\0"
        + b"".join(b"d" + struct.pack(">i", len(m) + 4) + m for m in messages)
        + b"c\0\0\0\x04"
    )


def decode(
    blocks: Sequence[bytes], *, wire: bool, plans: Sequence[ColumnPlan] = PLANS, **options: Any
) -> list[pa.RecordBatch]:
    said: list[int] = []
    options = {"batch_bytes": 4096, "block_bytes": 4096, "tally": Tally(), **options}
    schema = pa.schema([pa.field(p.name, p.type, p.nullable) for p in plans])
    decoder = Decoder(plans, schema, framed=wire, on_message=lambda kind, _: said.append(kind), **options)
    batches = [batch for block in blocks for batch in decoder.feed(block)]
    batches += decoder.finish()
    for batch in batches:
        batch.validate(full=True)
    if wire:
        assert bytes(said) == b"Hc"
    return batches


def value(plan: ColumnPlan, raw: bytes | None, **options: Any) -> Any:
    stream = HEAD + struct.pack(">h", 1) + field(raw) + END
    return decode([stream], wire=False, plans=[plan], **options)[0].column(0)[0].as_py()


def test_all_cuts_and_ways_of_framing_give_the_same_batches() -> None:
    messages = payload(60)
    whole = decode([b"".join(messages)], wire=False)
    assert [b.num_rows for b in whole] != [60]
    assert pa.Table.from_batches(whole).column("id").to_pylist() == list(range(60))
    stream = framed(messages)
    assert decode([stream], wire=True) == whole
    for size in (1, 2, 3, 7, 64, 1000):
        blocks = [stream[i : i + size] for i in range(0, len(stream), size)]
        assert decode(blocks, wire=True) == whole
    rows = b"".join(messages)
    for size in (1, 5, 19, 100):
        # A proxy may cut messages within rows, and join rows into one.
        again = framed([rows[i : i + size] for i in range(0, len(rows), size)])
        assert decode([again], wire=True) == whole
    assert decode([framed([rows])], wire=True) == whole


def test_every_single_cut_of_a_short_stream_gives_the_same_batches() -> None:
    messages = payload(4)
    for stream, wire in ((framed(messages), True), (b"".join(messages), False)):
        whole = decode([stream], wire=wire)
        for cut in range(len(stream) + 1):
            assert decode([stream[:cut], stream[cut:]], wire=wire) == whole


@given(st.lists(st.integers(1, 700), min_size=1, max_size=40), st.integers(1, 50))
def test_any_cuts_give_the_same_batches(cuts: list[int], rows: int) -> None:
    stream = framed(payload(rows))
    blocks, at = [], 0
    for cut in cuts:
        blocks.append(stream[at : at + cut])
        at += cut
    assert decode([*blocks, stream[at:]], wire=True) == decode([stream], wire=True)


def test_values_are_those_of_the_rows() -> None:
    table = pa.Table.from_batches(decode([framed(payload(40))], wire=True))
    for n, got in enumerate(table.to_pylist()):
        assert got["id"] == n
        if n % 5 == 3:
            assert set(got.values()) == {n, None}
            continue
        assert (got["big"], got["flag"], got["text"]) == (-n, bool(n % 2), f"Zz\0{'ü' * (n % 41)}")
        assert str(got["small"]) == f"{n}.50"
        assert str(got["wide"]) == f"-{12 * 10**8 + n * 10**4}.0077000000"
        assert got["list"] == [f"item {i}" for i in range(n % 4)]
        assert (got["mood"], got["json"], got["hex"], got["vector"]) == ("ok", '{"a": 1}', f"{n:02x}ff", [n, 0.5])
        assert got["range"]["empty"] is (n % 3 == 0)
        assert got["range"]["upper"] == (None if n % 3 == 0 else n + 1)
        assert got["net"] == f"10.0.0.{n}/24"


def test_every_truncation_is_an_error_that_says_so() -> None:
    stream = b"".join(payload(6))
    for cut in range(len(stream)):
        with pytest.raises(DataError, match="ended"):
            decode([stream[:cut]], wire=False)


FUZZ = """
import random, sys
from pathlib import Path
sys.path.insert(0, {root!r})
import importlib.util
spec = importlib.util.spec_from_file_location("cases", {here!r})
cases = importlib.util.module_from_spec(spec); spec.loader.exec_module(cases)
print(cases.fuzz(int(sys.argv[1]), 1500))
"""


def fuzz(seed: int, rounds: int) -> int:
    """Decode randomly damaged streams; how many were refused. Anything but an `EtlError` goes through."""
    r = random.Random(seed)
    refused = 0
    messages = payload(12)
    for _ in range(rounds):
        wire = r.random() < 0.5
        stream = bytearray(framed(messages) if wire else b"".join(messages))
        for _ in range(r.choice((1, 1, 2, 5))):
            at = r.randrange(len(stream))
            way = r.random()
            if way < 0.4:
                stream[at] = r.choice((0, 1, 0x7F, 0x80, 0xFF, r.randrange(256)))
            elif way < 0.6:
                stream[at : at + 4] = struct.pack(
                    ">i", r.choice((-1, -2, 0, 1, 2**31 - 1, -(2**31), 65536, r.randrange(400)))
                )
            elif way < 0.8:
                del stream[at : at + r.randrange(9)]
            else:
                stream[at:at] = r.randbytes(r.randrange(1, 9))
        special: Special = r.choice(("error", "null", "clamp"))
        plans = [replace(p, special=special, cast="round") for p in PLANS]
        try:
            decode([bytes(stream)], wire=wire, plans=plans, validate_utf8=True)
        except (EtlError, AssertionError):
            refused += 1
    return refused


@pytest.mark.parametrize("seed", range(3))
def test_damaged_streams_are_refused_and_never_crash(seed: int) -> None:
    from pathlib import Path

    here = Path(__file__).resolve()
    script = FUZZ.format(root=str(here.parents[4]), here=str(here))
    done = subprocess.run(
        [sys.executable, "-c", script, str(seed)], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 500


def ids(cases: list[tuple[ColumnPlan, bytes]]) -> list[str]:
    return [f"{plan.kind.name.lower()}-{i}" for i, (plan, _) in enumerate(cases)]


LENGTHS = [
    (ColumnPlan("v", Kind.INT8, pa.int64()), bytes(4)),
    (ColumnPlan("v", Kind.INT4, pa.int32()), bytes(8)),
    (ColumnPlan("v", Kind.INT2, pa.int16()), b""),
    (ColumnPlan("v", Kind.BOOL, pa.bool_()), bytes(2)),
    (ColumnPlan("v", Kind.UUID, pa.uuid()), bytes(15)),
    (ColumnPlan("v", Kind.NUMERIC, pa.decimal128(9, 0)), bytes(7)),
    (ColumnPlan("v", Kind.NUMERIC, pa.decimal128(9, 0)), number((1, 2), 0)[:-1]),
    (ColumnPlan("v", Kind.NUMERIC, pa.decimal128(30, 0)), number((1, 2), 0)[:-1]),
    (ColumnPlan("v", Kind.JSONB, pa.string()), b""),
    (ColumnPlan("v", Kind.INTERVAL, pa.month_day_nano_interval()), bytes(12)),
]


@pytest.mark.parametrize(("plan", "raw"), LENGTHS, ids=ids(LENGTHS))
def test_a_field_of_a_wrong_length_is_an_error_naming_column_and_row(plan: ColumnPlan, raw: bytes) -> None:
    with pytest.raises(DataError, match="column v, row 1 of the part"):
        value(plan, raw)


CORRUPT = [
    (ColumnPlan("v", Kind.NUMERIC, pa.decimal128(9, 0)), number((10000,), 0)),
    (ColumnPlan("v", Kind.NUMERIC, pa.decimal128(30, 0)), number((-1,), 0)),
    (ColumnPlan("v", Kind.NUMERIC, pa.decimal128(9, 0)), number((1,), 0, sign=0x1234)),
    (ColumnPlan("v", Kind.TIME, pa.time64("us")), struct.pack(">q", -1)),
    (ColumnPlan("v", Kind.JSONB, pa.string()), b"\x02{}"),
    (ColumnPlan("v", Kind.ENUM, pa.dictionary(pa.int32(), pa.string()), vocabulary=("a",)), b"b"),
    (
        ColumnPlan("v", Kind.ARRAY, pa.list_(pa.string()), depth=1, children=(ITEM,)),
        struct.pack(">iiiii", 1, 0, 25, 2**31 - 1, 1),
    ),
    (ColumnPlan("v", Kind.VECTOR, pa.list_(pa.float32(), 3)), struct.pack(">hhff", 2, 0, 1, 1)),
    (ColumnPlan("v", Kind.INET, pa.string()), b"\x02\x21\x00\x04\0\0\0\0"),
]


@pytest.mark.parametrize(("plan", "raw"), CORRUPT, ids=ids(CORRUPT))
def test_bytes_that_no_server_sends_are_an_error_naming_the_column(plan: ColumnPlan, raw: bytes) -> None:
    with pytest.raises(DataError, match="column v, row 1 of the part"):
        value(plan, raw)


@pytest.mark.parametrize("weight", [-32768, 32767, 20, -20])
@pytest.mark.parametrize("precision", [18, 38, 76])
def test_numerics_of_any_weight_end(weight: int, precision: int) -> None:
    kind: pa.DataType = pa.decimal128(precision, 2) if precision <= 38 else pa.decimal256(precision, 2)
    plan = ColumnPlan("v", Kind.NUMERIC, kind, cast="round", special="null")
    assert value(plan, number((1,), weight)) == (None if weight > 0 and (weight > 20 or precision < 76) else 0) or (
        weight == 20 and precision == 76
    )
    assert value(plan, number((0, 0), weight)) == 0
    assert value(plan, number((), weight)) == 0


@given(
    digits=st.lists(st.integers(0, 9999) | st.sampled_from([0, 100, 9900, 10000, -1]), max_size=6),
    weight=st.integers(-3, 5),
    sign=st.sampled_from([0, 0x4000]),
    precision=st.integers(1, 18),
    data=st.data(),
)
def test_digits_are_the_decimal_that_they_spell_or_an_error(
    digits: list[int], weight: int, sign: int, precision: int, data: st.DataObject
) -> None:
    scale = data.draw(st.integers(0, precision))
    plan = ColumnPlan("v", Kind.NUMERIC, pa.decimal128(precision, scale))
    raw = number(digits, weight, sign=sign)
    spelt = sum((Fraction(10000) ** (weight - i) * d for i, d in enumerate(digits)), Fraction(0))
    scaled = (-spelt if sign else spelt) * 10**scale
    if all(0 <= d <= 9999 for d in digits) and scaled.denominator == 1 and abs(scaled) < 10**precision:
        assert value(plan, raw).as_tuple() == Decimal(int(scaled)).scaleb(-scale).as_tuple()
    else:
        with pytest.raises((CastError, DataError)):
            value(plan, raw)


def test_null_in_a_column_that_says_not_null_is_an_error() -> None:
    with pytest.raises(SchemaError, match="column v, row 1"):
        value(ColumnPlan("v", Kind.INT4, pa.int32(), nullable=False), None)


@pytest.mark.parametrize(
    "raw",
    [b"\xff", b"a\xc3", b"\xed\xa0\x80x", b"\xf0\x9f\x98", b"12345678\xe2\x28\xa1", b"\xf4\x90\x80\x80", b"\xc0\x80"],
)
def test_bytes_that_are_not_utf8_follow_the_policy(raw: bytes) -> None:
    def plan(special: Any) -> ColumnPlan:
        return ColumnPlan("v", Kind.TEXT, pa.string(), special=special)

    with pytest.raises(CastError, match=r"column v, row 1 .*invalid_utf8"):
        value(plan("error"), raw, validate_utf8=True)
    tally = Tally()
    assert value(plan("null"), raw, validate_utf8=True, tally=tally) is None
    assert value(plan("clamp"), raw, validate_utf8=True, tally=tally) == raw.decode(errors="replace")
    assert tally.special == {"v": {"invalid_utf8": 2}}


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_replaced_text_is_what_python_makes_of_it(raw: bytes) -> None:
    plan = ColumnPlan("v", Kind.TEXT, pa.string(), special="clamp")
    assert value(plan, raw, validate_utf8=True) == raw.decode(errors="replace")


def test_a_type_that_the_wire_form_cannot_become_is_refused_before_reading() -> None:
    with pytest.raises(SchemaError, match="column v"):
        value(ColumnPlan("v", Kind.INT4, pa.int64()), bytes(4))


def test_a_row_larger_than_all_buffers_is_whole_and_the_window_shrinks_back() -> None:
    plans = [ColumnPlan("v", Kind.TEXT, pa.string()), ColumnPlan("a", Kind.INT4, pa.int32())]
    rows = [
        struct.pack(">h", 2) + field(b"z" * size) + field(struct.pack(">i", i))
        for i, size in enumerate((5, 20_000_000, 7, 9))
    ]
    schema = pa.schema([pa.field(p.name, p.type) for p in plans])
    decoder = Decoder(plans, schema, tally=Tally(), batch_bytes=1 << 16, block_bytes=1 << 16)
    batches = [*decoder.feed(HEAD + b"".join(rows)), *decoder.feed(b"".join(rows[2:]) * 10 + END), *decoder.finish()]
    sizes = [len(str(text)) for batch in batches for text in batch.column(0).to_pylist()]
    assert sizes == [5, 20_000_000, 7, 9, *[7, 9] * 10]
    assert len(decoder.space()) == 1 << 16


def test_batches_stay_right_while_the_memory_of_earlier_ones_is_used_again() -> None:
    kept = []
    stream = framed(payload(3000))
    for number_, batch in enumerate(decode([stream], wire=True)):
        if number_ % 3 == 0:
            kept.append(batch)
    assert len(kept) > 5
    before = [batch.to_pylist() for batch in kept]
    decode([stream], wire=True)
    assert [batch.to_pylist() for batch in kept] == before


def test_vectors_keep_their_width_and_sparse_ones_count_from_one() -> None:
    fixed = ColumnPlan("v", Kind.VECTOR, pa.list_(pa.float32(), 3))
    assert value(fixed, struct.pack(">hh3f", 3, 0, 1, -2.5, 0)) == [1, -2.5, 0]
    assert value(fixed, None) is None
    free = ColumnPlan("v", Kind.VECTOR, pa.list_(pa.float32()))
    assert value(free, struct.pack(">hh2f", 2, 0, 1, -2.5)) == [1, -2.5]
    half = ColumnPlan("v", Kind.HALFVEC, pa.list_(pa.float16(), 2))
    assert value(half, struct.pack(">hh2e", 2, 0, 1, -2.5)) == [1, -2.5]
    kind = pa.struct([("dim", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float32()))])
    sparse = ColumnPlan("v", Kind.SPARSEVEC, kind)
    raw = struct.pack(">iiiiiff", 9, 2, 0, 0, 7, 1.5, 2)
    assert value(sparse, raw) == {"dim": 9, "indices": [1, 8], "values": [1.5, 2]}
    assert value(sparse, None) is None
    with pytest.raises(DataError, match="column v, row 1"):
        value(sparse, raw[:-1])
