"""The two tables that the compiled loop and its caller share, and the codes that pass between them.

A table row is int64 words. Addresses are machine addresses; sizes are bytes unless said otherwise.
"""

from __future__ import annotations

SLACK = 64
"""Bytes that are readable past a source and writable past a text area."""

# One state row per stream.
S_POS = 0
"""Next byte to read; after STATUS_MORE the start of what is incomplete."""
S_END = 1
S_ROW = 2
"""Rows in the batch."""
S_ROW_CAP = 3
S_COLUMNS = 4
S_FRAMED = 5
"""The kind of the messages that hold rows (CopyData, DataRow); 0: the bytes are the rows themselves."""
S_PHASE = 6
S_ROOM = 7
"""No text area has less free space than this."""
S_SPREAD = 8
"""Bytes of text that one byte of a row can become, at most."""
S_MESSAGE_END = 9
S_NEED = 10
"""STATUS_MORE: bytes wanted from S_POS on, at least. STATUS_FULL: bytes of the row that did not fit."""
S_ERROR = 11
S_COLUMN = 12
S_FIELD = 13
S_LENGTH = 14
S_ROW_START = 15
STATE_WORDS = 16

# One row per column.
C_OP = 0
C_VALUES = 1
"""Values, or offsets of text."""
C_VALID = 2
C_NULLS = 3
C_DATA = 4
C_USED = 5
C_CAP = 6
"""Bytes of the text area; 0 for columns without one."""
C_SCALE = 7
C_LIMIT = 8
"""10^precision where that fits."""
C_FLAGS = 9
C_AUX = 10
"""Decimals: eight words, 10^precision and the largest value. Enums: the label table."""
C_AUXN = 11
"""Enums: slots of the label table. Decimals of 8 bytes, which are float64: 10^scale."""
C_ROUNDED = 12
C_WIDTH = 13
"""Bytes per value; 0: bits; -1: offsets."""
C_REASON = 14
C_WIRE = 15
"""Bytes that every value has on the wire; 0: any."""
C_COUNTS = 16
"""One count per reason."""
C_FAILED = 31
"""Why a single field failed."""
STRIDE = 32
STRIDE_BYTES = 8 * STRIDE

F_NULLABLE = 1
SPECIAL_SHIFT = 1
"""Two bits: 0 error, 1 null, 2 clamp."""
F_ROUND = 8
F_OPEN = 16
F_UTF8 = 32
"""Check text, since the server does not."""

OP_FIX8 = 0
OP_FIX4 = 1
OP_TEXT = 2
OP_TIMESTAMP = 3
OP_DATE = 4
OP_BOOL = 5
OP_FIX2 = 6
OP_NUM64 = 7
OP_NUM128 = 8
OP_NUM256 = 9
OP_MONEY = 10
OP_CHECKED = 11
"""Text that the server does not check."""
OP_HEX = 12
OP_UUID = 13
OP_UUID_TEXT = 14
OP_TIME = 15
OP_INTERVAL = 16
OP_JSONB = 17
OP_ENUM = 18

STATUS_MORE = 1
"""The rest is incomplete."""
STATUS_FULL = 2
"""The batch is full (or, at row 0, one row is larger than the text areas)."""
STATUS_MESSAGE = 3
"""A protocol message other than CopyData begins at S_POS."""
STATUS_SPLIT = 4
"""A message ends within a row."""
STATUS_DONE = 5
"""The trailer was read."""
STATUS_ERROR = 6

PHASE_HEADER = 0
PHASE_ROWS = 1
PHASE_DONE = 2

CLAMPED = -1
E_TRUNCATED = 1
E_LENGTH = 2
E_FIELDS = 3
E_NULL = 4
E_SPECIAL = 5
E_FRACTION = 6
E_NARROW = 7
E_CORRUPT = 8
E_LABEL = 9
E_HEADER = 10
E_TRAILING = 11

R_NAN = 0
R_INFINITY = 1
R_NEG_INFINITY = 2
R_RANGE = 3
R_TIME24 = 4
R_UTF8 = 5
R_DEPTH = 6
REASONS = ("nan", "infinity", "-infinity", "out_of_range", "time_24", "invalid_utf8", "depth")

INT64_MAX = 9223372036854775807
INT64_MIN = -9223372036854775808
FLOAT_NAN = 0x7FF8000000000000
FLOAT_INFINITY = 0x7FF0000000000000
MONTHS_MAX = 2147483647
MONTHS_MIN = -2147483648
EPOCH_DAYS = 10957
"""2000-01-01, PostgreSQL's epoch, in days since 1970-01-01."""
EPOCH_US = 946684800000000
DAY_US = 86400000000
DATE_MIN = -2440588
"""4714-11-24 BC, PostgreSQL's first date (datatype/timestamp.h)."""
DATE_MAX = 2145042905
"""5874897-12-31, its last."""
TIMESTAMP_MIN = -210866803200000000
"""4714-11-24 00:00:00 BC in microseconds since 1970."""
SIGNATURE = b"PGCOPY\n\xff\r\n\x00"
SIGNATURE_HIGH = 0x5047434F50590AFF
