"""Query text and names: one tokenizer for quoting, comments and parameters; no SQL parser.

Everything a source must know about a text before the server sees it (is it one read, may it be split, where do the
parameters stand) comes from `prepare`; `wrap` puts the text into a derived table. What cannot be told for sure counts
as not allowed, so a text is rather read in one part than split wrongly.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

from etl.core.errors import ConfigError
from etl.core.partition import KeyRange, NullKeys, Whole
from etl.core.schema import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from etl.core.partition import Slice

ALIAS: Final = "cuetl_q"
"""The name of the derived table that `wrap` makes."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


@dataclass(frozen=True, slots=True)
class _Lexis:
    """How a dialect quotes: `names` and `strings` map opening to closing characters."""

    strings: Mapping[str, str]
    names: Mapping[str, str]
    backslash: bool = False
    """Backslash escapes in every string (MySQL's default sql_mode)."""
    e_strings: bool = False
    dollar: bool = False
    q_strings: bool = False
    nested: bool = False
    hash_comments: bool = False


_ANSI: Final = _Lexis(strings={"'": "'"}, names={'"': '"'})
_LEXES: Final[Mapping[str, _Lexis]] = {
    "postgresql": _Lexis({"'": "'"}, {'"': '"'}, e_strings=True, dollar=True, nested=True),
    "duckdb": _Lexis({"'": "'"}, {'"': '"'}, e_strings=True, dollar=True, nested=True),
    "sqlite": _Lexis({"'": "'"}, {'"': '"', "`": "`", "[": "]"}),
    "mysql": _Lexis({"'": "'", '"': '"'}, {"`": "`"}, backslash=True, hash_comments=True),
    "mssql": _Lexis({"'": "'"}, {'"': '"', "[": "]"}, nested=True),
    "oracle": _Lexis({"'": "'"}, {'"': '"'}, q_strings=True),
}
_SPELLINGS: Final[Mapping[str, str]] = {"mariadb": "mysql", "postgres": "postgresql", "cockroachdb": "postgresql"}

_READS: Final = frozenset({"select", "with", "values", "table", "from"})
_CHANGES: Final = frozenset({"insert", "update", "delete", "merge"})
_NOT_READS: Final = _CHANGES | _set(
    "alter analyze attach begin call checkpoint close cluster comment commit copy create deallocate declare detach "
    "discard do drop end exec execute export fetch flush grant handler import install kill listen load lock move "
    "notify optimize prepare reassign refresh reindex release rename repair replace reset revoke rollback savepoint "
    "security set shutdown start truncate unlisten upsert use vacuum"
)
_SET_OPERATIONS: Final = frozenset({"union", "intersect", "except", "minus"})
_NOT_CALLS: Final = _set(
    "all and any array as asc between by case distinct else except exists filter from full group having ilike in inner "
    "intersect into is join lateral like limit materialized minus not offset on or order outer over partition row rows "
    "select set similar some table then to union using values when where window with within"
)
_SCALARS: Final = _set(
    "abs ascii bigint bit_length btrim cast ceil ceiling char char_length character character_length chr coalesce "
    "concat concat_ws date date_part date_trunc datetime dec decimal degrees div exp extract floor format greatest "
    "hex ifnull iif initcap instr int integer interval isnull json_extract julianday lcase least left length ln log "
    "log10 lower lpad ltrim make_date md5 mod now nullif numeric octet_length overlay pi position pow power "
    "quote_ident quote_literal radians regexp_replace repeat replace reverse right round rpad rtrim sign split_part "
    "sqrt starts_with strftime strpos substr substring time timestamp timestamptz to_char to_date to_hex "
    "to_number to_timestamp translate trim trunc truncate typeof ucase unicode upper varchar"
)
"""Functions and types with brackets that give one value per row in every dialect that has them."""


class Token(NamedTuple):
    """A piece of the text. `kind`: space, comment, string, name, word, number, param, code or sign."""

    kind: str
    text: str
    start: int
    depth: int


@dataclass(frozen=True, slots=True)
class SimpleSelect:
    """The pieces of `select COLUMNS from TABLE [[as] ALIAS] [where WHERE]`, as written."""

    columns: str
    table: str
    alias: str | None
    where: str | None


@dataclass(frozen=True, slots=True)
class TopLevel:
    """What stands at the top level of a text.

    Attributes:
        has_order_by: ORDER BY of the result.
        has_limit: LIMIT, OFFSET, FETCH, TOP, DISTINCT ON, TABLESAMPLE or a FOR clause, or text that may hide one:
            the text must not be evaluated once per part.
        has_set_operation: UNION, INTERSECT, EXCEPT, MINUS.
        is_with: The text starts with WITH.
        functions: Names called anywhere, without schema; lower case unless quoted.
        simple_select: The pieces of a plain select from one table; None when that is not certain.
    """

    has_order_by: bool
    has_limit: bool
    has_set_operation: bool
    is_with: bool
    functions: frozenset[str]
    simple_select: SimpleSelect | None


@dataclass(frozen=True, slots=True)
class Text:
    """One statement that reads, ready to send or to wrap.

    Attributes:
        sql: The statement without final semicolons and comments, parameters replaced by literals.
        dialect: The dialect whose quoting was used.
        first_word: In lower case, past opening brackets.
        is_read: Whether the first word says that it reads; False for a word unknown here, left to the server.
        top_level: What stands at the top level.
        main: Where the main select starts in `sql` (after the common table expressions).
    """

    sql: str
    dialect: str
    first_word: str
    is_read: bool
    top_level: TopLevel
    main: int = 0


def _lexis(dialect: str) -> _Lexis:
    return _LEXES.get(_SPELLINGS.get(dialect, dialect), _ANSI)


_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[^\W\d][\w$#]*")
_NUMBER = re.compile(r"\d[\w.]*|\.\d\w*")
_PARAM = re.compile(r":([^\W\d]\w*)")
_DOLLAR = re.compile(r"\$(?:[^\W\d]\w*)?\$")


def tokens(sql: str, dialect: str, /) -> list[Token]:
    """Cut a text into tokens that give it back when joined; `depth` counts open round brackets.

    Raises:
        ConfigError: A string, name or comment has no end.
    """
    lexis = _lexis(dialect)
    found: list[Token] = []
    at, depth = 0, 0
    while at < len(sql):
        kind, end = _next(sql, at, lexis)
        text = sql[at:end]
        if text == ")":
            depth = max(0, depth - 1)
        found.append(Token(kind, text, at, depth))
        if text == "(":
            depth += 1
        at = end
    return found


def _next(sql: str, at: int, lexis: _Lexis) -> tuple[str, int]:
    first, two = sql[at], sql[at : at + 2]
    if match := _SPACE.match(sql, at):
        return "space", match.end()
    if two == "--" and (not lexis.hash_comments or at + 2 == len(sql) or sql[at + 2].isspace()):
        return "comment", _line_end(sql, at)
    if first == "#" and lexis.hash_comments:
        return "comment", _line_end(sql, at)
    if two == "/*":
        # MySQL runs what stands in /*! … */ and MariaDB what stands in /*M! … */.
        runs = lexis.hash_comments and re.match(r"/\*M?!", sql[at : at + 4]) is not None
        return "code" if runs else "comment", _comment_end(sql, at, nested=lexis.nested)
    if lexis.e_strings and first in "eE" and sql[at + 1 : at + 2] == "'":
        return "string", _quoted_end(sql, at + 1, "'", backslash=True, what="string")
    if lexis.q_strings and (match := re.compile(r"[nN]?[qQ]'(.)", re.DOTALL).match(sql, at)):
        close = {"[": "]", "(": ")", "{": "}", "<": ">"}.get(match[1], match[1]) + "'"
        return "string", _find(sql, close, match.end(), "string", at)
    if lexis.dollar and first == "$" and (match := _DOLLAR.match(sql, at)):
        return "string", _find(sql, match[0], match.end(), "string", at)
    if first in lexis.strings:
        return "string", _quoted_end(sql, at, lexis.strings[first], backslash=lexis.backslash, what="string")
    if first in lexis.names:
        return "name", _quoted_end(sql, at, lexis.names[first], backslash=False, what="name")
    if two == "::":
        return "sign", at + 2
    if match := _PARAM.match(sql, at):
        return "param", match.end()
    if match := _WORD.match(sql, at) or _NUMBER.match(sql, at):
        return "word" if match.re is _WORD else "number", match.end()
    return "sign", at + 1


def _line_end(sql: str, at: int) -> int:
    end = sql.find("\n", at)
    return len(sql) if end < 0 else end


def _find(sql: str, close: str, at: int, what: str, start: int) -> int:
    end = sql.find(close, at)
    if end < 0:
        raise _open(sql, start, what)
    return end + len(close)


def _open(sql: str, start: int, what: str) -> ConfigError:
    return ConfigError(f"the query has a {what} without an end, from character {start + 1}: {sql[start : start + 40]}")


def _comment_end(sql: str, start: int, *, nested: bool) -> int:
    level, at = 1, start + 2
    while level:
        close = sql.find("*/", at)
        if close < 0:
            raise _open(sql, start, "comment")
        more = sql.find("/*", at, close) if nested else -1
        level, at = (level + 1, more + 2) if more >= 0 else (level - 1, close + 2)
    return at


def _quoted_end(sql: str, start: int, close: str, *, backslash: bool, what: str) -> int:
    at = start + 1
    while at < len(sql):
        if backslash and sql[at] == "\\":
            at += 2
        elif sql[at] != close:
            at += 1
        elif sql[at + 1 : at + 2] == close:
            at += 2
        else:
            return at + 1
    raise _open(sql, start, what)


def prepare(sql: str, *, dialect: str, params: Mapping[str, object], quote_literal: Callable[[object], str]) -> Text:
    """One statement that reads, with its parameters in place.

    A declared `:name` becomes `quote_literal(value)` outside strings, comments and quoted names; `::name` and names
    that nobody declared stay as written.

    Raises:
        ConfigError: No statement, more than one, one that does not read, a parameter that is never used, or an open
            string, name or comment.
    """
    statement = _one(tokens(sql, dialect))
    used = {t.text[1:] for t in statement if t.kind == "param"}
    for name in params:
        if name not in used:
            raise ConfigError(
                f"the parameter {name} is declared but :{name} is not in the query",
                hint=nearest(name, sorted(used), what="parameters in the query"),
                param=name,
            )
    text = "".join(_bound(statement, params, quote_literal))
    return _facts(text, dialect)


def _bound(
    statement: Sequence[Token], params: Mapping[str, object], quote_literal: Callable[[object], str]
) -> Iterator[str]:
    before = ""
    literal = False
    for at, token in enumerate(statement):
        text = token.text
        bind = token.kind == "param" and text[1:] in params
        if bind:
            text = _literals(text[1:], params[text[1:]], quote_literal, listed=_in_list(statement, at))
        # A literal must not grow together with its neighbours: `x-:n` with -1, `e:v` with 'a'.
        if (bind and before and not before[-1].isspace()) or (literal and not text[0].isspace() and text not in ",)"):
            yield " "
        yield text
        before, literal = text, bind


def _in_list(statement: Sequence[Token], at: int) -> bool:
    """Whether a token is one of the values of `in (…)`."""
    before = [t.text.lower() for t in statement[:at] if t.kind not in ("space", "comment")]
    while len(before) > 2 and before[-1] == ",":
        before = before[:-2]
    return before[-2:] == ["in", "("]


def _literals(name: str, value: object, quote_literal: Callable[[object], str], *, listed: bool) -> str:
    """A value as it stands in the text; a list among the values of `in (…)` as its own values."""
    if not listed or not isinstance(value, list | tuple):
        return quote_literal(value)
    if not value:
        raise ConfigError(
            f"the parameter {name} is an empty list, and `in ()` is no SQL",
            hint="Leave the condition out where there is nothing to look for.",
            param=name,
        )
    return ", ".join(quote_literal(one) for one in value)


def _one(found: Sequence[Token]) -> list[Token]:
    statements: list[list[Token]] = [[]]
    for token in found:
        if token.kind == "sign" and token.text == ";":
            statements.append([])
        else:
            statements[-1].append(token)
    real = [s for s in statements if any(t.kind not in ("space", "comment") for t in s)]
    if not real:
        raise ConfigError("the query has no statement", hint="Give one SELECT.")
    if len(real) > 1:
        raise ConfigError(f"the query has {len(real)} statements", hint="Give one statement that reads.")
    one = real[0]
    while one[-1].kind in ("space", "comment"):
        one.pop()
    while one[0].kind == "space":
        one.pop(0)
    return one


def _facts(sql: str, dialect: str) -> Text:
    found = [t for t in tokens(sql, dialect) if t.kind not in ("space", "comment")]
    found = _peeled(found)
    words = [t.text.lower() if t.kind == "word" else "" for t in found]
    base = min((t.depth for t in found), default=0)
    first = next((w for w in words if w), found[0].text)
    main = _main(found, words, base)
    _refuse_changes(found, words, first, base)
    set_operation = any(words[i] in _SET_OPERATIONS for i in range(len(found)) if _keyword(found, i, base))
    hidden = set_operation or found[0].text == "("
    limit = any(_limits(found, words, i) for i in range(len(found)) if hidden or found[i].depth == base) or any(
        t.kind == "code" for t in found
    )
    order = any(words[i] == "order" and words[i + 1] == "by" for i in range(len(found) - 1) if _keyword(found, i, base))
    functions = _functions(found, words)
    top = TopLevel(
        has_order_by=order,
        has_limit=limit,
        has_set_operation=set_operation,
        is_with=first == "with",
        functions=functions,
        simple_select=None if limit or order or set_operation else _simple(sql, found, words, functions),
    )
    return Text(sql, dialect, first, first in _READS, top, found[main].start)


def _peeled(found: list[Token]) -> list[Token]:
    """Without brackets around the whole."""
    while (
        len(found) > 2
        and found[0].text == "("
        and found[-1].text == ")"
        and all(t.depth > found[0].depth for t in found[1:-1])
    ):
        found = found[1:-1]
    return found


def _keyword(found: Sequence[Token], i: int, base: int) -> bool:
    """Whether a word at the top level can be a keyword: not `t.offset`, not `as limit`."""
    before = found[i - 1] if i else None
    return found[i].depth == base and not (before and (before.text == "." or before.text.lower() == "as"))


def _limits(found: Sequence[Token], words: Sequence[str], i: int) -> bool:
    if not _keyword(found, i, found[i].depth):
        return False
    before = words[i - 1] if i else ""
    after = words[i + 1] if i + 1 < len(words) else ""
    match words[i]:
        case "limit" | "offset" | "tablesample":
            return True
        case "fetch":
            return after in ("first", "next")
        case "top":
            return before in ("select", "distinct", "all")
        case "on":
            return before == "distinct"
        case "for":
            # At the top level: FOR UPDATE, FOR SHARE, FOR XML …; inside brackets it may be substring(a for 2).
            return found[i].depth == 0 or after in ("update", "share", "no", "key")
    return False


def _main(found: Sequence[Token], words: Sequence[str], base: int) -> int:
    if words[0] != "with":
        return 0
    return next((i for i, w in enumerate(words) if i and w in _READS and found[i].depth == base), 0)


def _refuse_changes(found: Sequence[Token], words: Sequence[str], first: str, base: int) -> None:
    change = first if first in _NOT_READS else ""
    if first == "with":
        for i in range(1, len(words)):
            # `as (delete …`, `as materialized (delete …`, or `with … ) delete …`
            opens = found[i - 1].text == "(" and i > 1 and words[i - 2] in ("as", "materialized")
            follows = found[i - 1].text == ")" and found[i].depth == base
            if words[i] in _CHANGES and (opens or follows):
                change = words[i]
    if first in ("select", "with", "from") and any(
        w == "into" and _keyword(found, i, base) for i, w in enumerate(words)
    ):
        change = "select into"
    if change:
        article = "an" if change[0] in "aeiou" else "a"
        raise ConfigError(
            f"the query is {article} {change.upper()}, not a read", hint="Sources are read only: give a SELECT."
        )


def _functions(found: Sequence[Token], words: Sequence[str]) -> frozenset[str]:
    called: set[str] = set()
    for i in range(len(found) - 1):
        if found[i + 1].text != "(":
            continue
        if words[i] and words[i] not in _NOT_CALLS:
            called.add(words[i])
        elif found[i].kind == "name":
            called.add(_unquoted(found[i].text))
    return frozenset(called)


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[-1] * 2, text[-1])


_ENDS: Final = _set(
    "group having order limit offset fetch window union intersect except minus join cross inner left right full "
    "natural for tablesample qualify connect start pivot unpivot option with use force ignore only lateral final "
    "sample prewhere asof semi anti positional"
)


def _simple(sql: str, found: Sequence[Token], words: Sequence[str], functions: frozenset[str]) -> SimpleSelect | None:
    nested = any(w in ("select", "distinct", "over", "all", "values", "unnest", "table") for w in words[1:])
    if words[0] != "select" or found[0].depth or nested or not functions <= _SCALARS:
        return None
    level = [i for i in range(len(found)) if found[i].depth == 0]
    frm = [i for i in level if words[i] == "from"]
    if len(frm) != 1 or frm[0] == 1 or any(words[i] in _ENDS for i in level if i > frm[0]):
        return None
    where = [i for i in level if words[i] == "where"]
    if len(where) > 1 or (where and (where[0] < frm[0] or where[0] + 1 == len(found))):
        return None
    end = where[0] if where else len(found)
    table, alias = _table(found[frm[0] + 1 : end])
    if not table:
        return None
    return SimpleSelect(
        columns=_span(sql, found[1 : frm[0]]),
        table=_span(sql, table),
        alias=alias,
        where=_span(sql, found[where[0] + 1 :]) if where else None,
    )


def _table(found: Sequence[Token]) -> tuple[Sequence[Token], str | None]:
    """`a.b [as] x` as its name and its alias; no name when it is anything else."""
    count = 0
    while count < len(found) and found[count].kind in ("word", "name"):
        count += 1
        if count < len(found) and found[count].text == "." and count + 1 < len(found):
            count += 1
        else:
            break
    rest = found[count:]
    if not count or found[count - 1].kind not in ("word", "name"):
        return (), None
    if rest and rest[0].text.lower() == "as":
        rest = rest[1:]
        if not rest:
            return (), None
    if len(rest) > 1 or (rest and rest[0].kind not in ("word", "name")):
        return (), None
    return found[:count], rest[0].text if rest else None


def _span(sql: str, found: Sequence[Token]) -> str:
    return sql[found[0].start : found[-1].start + len(found[-1].text)]


def wrap(text: Text, projection: str, where: str | None = None, /) -> str:
    """The text as a derived table: `select PROJECTION from (…) as cuetl_q [where WHERE]`.

    The text stands on lines of its own, so that a final `--` comment ends. Oracle takes no `as`; SQL Server takes no
    WITH inside a derived table, there the main select becomes one more common table expression.
    """
    condition = f" where {where}" if where else ""
    if text.dialect == "mssql" and text.top_level.is_with:
        head, main = text.sql[: text.main].rstrip(), text.sql[text.main :]
        return f"{head},\n{ALIAS} as (\n{main}\n)\nselect {projection} from {ALIAS}{condition}"
    named = ALIAS if text.dialect == "oracle" else f"as {ALIAS}"
    return f"select {projection} from (\n{text.sql}\n) {named}{condition}"  # noqa: S608 - the user's own query


def quote_name(name: str, dialect: str, /) -> str:
    """The name quoted for the dialect, kept byte for byte.

    Raises:
        ConfigError: The name is empty or holds a NUL character, which no store can quote.
    """
    if not name or "\0" in name:
        what = f"{name!r} has a NUL character and cannot be a name" if name else "a name is empty"
        raise ConfigError(what, hint="Give it another one: in a query, an alias.")
    match _SPELLINGS.get(dialect, dialect):
        case "mysql":
            return f"`{name.replace('`', '``')}`"
        case "mssql":
            return f"[{name.replace(']', ']]')}]"
    return f'"{name.replace(chr(34), chr(34) * 2)}"'


def quote_text(value: str, dialect: str, /) -> str:
    """A text literal for dialects whose driver has no quoting of its own.

    Raises:
        ConfigError: The value holds a NUL character.
    """
    if "\0" in value:
        raise ConfigError("a text parameter holds a NUL character")
    if _lexis(dialect).backslash:
        value = value.replace("\\", "\\\\")
    return f"'{value.replace(chr(39), chr(39) * 2)}'"


def parse_table_name(name: str, dialect: str, /) -> tuple[str, ...]:
    """The parts of a table's name as the user wrote it: `a.b` has two, `"a.b"` is one.

    Parts are kept byte for byte: no folding of case.

    Raises:
        ConfigError: A part is empty, or a quote has no end or stands inside a part.
    """
    quotes = {'"': '"', **_lexis(dialect).names}
    parts: list[str] = []
    at = 0
    while True:
        if name[at : at + 1] in quotes and at < len(name):
            end = _quoted_end(name, at, quotes[name[at]], backslash=False, what="quoted name")
            parts.append(_unquoted(name[at:end]))
        else:
            end = at
            while end < len(name) and name[end] != ".":
                end += 1
            parts.append(name[at:end])
        if not parts[-1] or (end < len(name) and name[end] != "."):
            raise ConfigError(
                f"{name!r} is not a table's name", hint='Write schema.table; quote a name with dots: "a.b".'
            )
        if end == len(name):
            return tuple(parts)
        at = end + 1


def literal(value: object, /, dialect: str) -> str:
    """A typed literal of a parameter or bound; dates and times are their ISO text, which the store reads as such."""
    match value:
        case None:
            return "null"
        case bool():
            return str(int(value))
        case float() if not math.isfinite(value):
            # SQLite has no words for them; elsewhere the number is refused as too large.
            return "null" if math.isnan(value) else f"{'-' if value < 0 else ''}9e999"
        case int() | float() | Decimal():
            return str(value)
        case bytes():
            return f"x'{value.hex()}'"
        case list() | tuple():
            raise ConfigError(
                "a list was given for a parameter that stands for one value", hint="Write it as `in (:name)`."
            )
        case dt.datetime():
            naive = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
            return quote_text(naive.isoformat(sep=" "), dialect)
    return quote_text(str(value), dialect)


def key_condition(part: Slice, /, dialect: str) -> str:
    """The condition of a part by one key column; "" for all rows.

    Raises:
        ConfigError: The store cannot read such a part.
    """
    match part:
        case Whole():
            return ""
        case NullKeys(column):
            return f"{quote_name(column, dialect)} is null"
        case KeyRange((column,), low, high, nulls):
            name = quote_name(column, dialect)
            ends = [f"{name} >= {low[0]}"] if low else []
            ends += [f"{name} < {high[0]}"] if high else []
            if not ends:
                return "" if nulls else f"{name} is not null"
            return f"({' and '.join(ends)} or {name} is null)" if nulls else " and ".join(ends)
    raise ConfigError(f"{dialect} cannot read a part by {type(part).__name__}")
