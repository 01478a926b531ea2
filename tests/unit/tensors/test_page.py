"""The page of a dataset: whole, of itself, and no text of a stranger is markup in it."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from etl import open_dataset
from etl.core.errors import ConfigError
from etl.tensors.options import WriteOptions
from etl.tensors.page import MARK, write_page
from etl.tensors.showing import bars, looks, value_text
from tests.datasets import export

if TYPE_CHECKING:
    from pathlib import Path

EVIL = '<script>alert("x")</script>&amp;\'"><img src=x onerror=y>'
VOID = frozenset({"meta", "rect", "line", "br", "img", "link", "input", "hr"})


class Page(HTMLParser):
    """Collects tags and attributes, and holds that every tag is closed in its order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def made(folder: Path, name: str = "value") -> Path:
    rows = 400
    table = pa.table(
        {
            "user": pa.array(range(rows)),
            name: pa.array([None if i % 8 == 0 else i * 0.5 for i in range(rows)]),
            "word": pa.array([EVIL if i % 3 else "plain" for i in range(rows)]),
            "at": pa.array([1_700_000_000_000_000 + i for i in range(rows)], pa.timestamp("us", "UTC")),
        }
    )
    options = WriteOptions(split={"train": "0.5", "val": "0.5"}, split_key=("user",), key=("user",))
    export(folder / "out", table, 2, fmt="safetensors", options=options)
    return folder / "out"


def test_the_page_is_well_formed_and_loads_nothing(tmp_path: Path) -> None:
    dataset = open_dataset(made(tmp_path))
    text = dataset.page()
    page = Page(text)
    assert text.startswith(MARK)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    names = {name for name, _ in page.attributes}
    assert not {"src", "href", "srcset"} & names
    assert not any(name.startswith("on") for name in names)
    assert "url(" not in text
    assert "default-src 'none'" in text
    assert page.tags.count("svg") >= 2
    shown = "".join(page.words)
    for word in ("train", "val", "select 1", "create", str(dataset.manifest.document["content_sha256"]), "12.5%"):
        assert word in shown


def test_texts_of_the_data_are_text_on_the_page(tmp_path: Path) -> None:
    dataset = open_dataset(made(tmp_path, EVIL))
    for text in (dataset.page(), dataset._repr_html_(), dataset.split("train")._repr_html_()):
        page = Page(text)
        assert "<script>" not in text
        assert "img" not in page.tags
        assert EVIL in "".join(page.words)


def test_secrets_do_not_reach_the_page(tmp_path: Path) -> None:
    table = pa.table({"word": ["postgresql://etl:hunter2secret@db/shop"] * 4})
    export(tmp_path / "out", table)
    assert "hunter2secret" not in open_dataset(tmp_path / "out").page()


def test_letters_that_steer_or_are_none_are_shown_as_dots(tmp_path: Path) -> None:
    # A page may be looked at in a terminal, and a folder's name need not be UTF-8.
    folder = made(tmp_path, name="a\x1b[2J\u202eb").rename(tmp_path / os.fsdecode(b"shop\xff"))
    target = tmp_path / "page.html"
    write_page(target, open_dataset(folder).page())
    text = target.read_text(encoding="utf-8")
    assert all(c.isprintable() or c in "\n\N{NARROW NO-BREAK SPACE}" for c in text)
    assert "a\N{MIDDLE DOT}[2J\N{MIDDLE DOT}b" in "".join(Page(text).words)


def test_a_page_that_cannot_be_written_leaves_no_draft(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_page(tmp_path / "page.html", f"{MARK}\udcff")
    assert list(tmp_path.iterdir()) == []


def test_only_a_page_is_written_over(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    write_page(target, f"{MARK}one")
    write_page(target, f"{MARK}two")
    assert target.read_text() == f"{MARK}two"
    other = tmp_path / "data.csv"
    other.write_text("a,b\n")
    for place in (other, tmp_path, tmp_path / "no" / "page.html"):
        with pytest.raises(ConfigError, match="--html"):
            write_page(place, MARK)
    assert other.read_text() == "a,b\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.csv", "page.html"]


def test_what_is_shown_of_a_column(tmp_path: Path) -> None:
    dataset = open_dataset(made(tmp_path))
    found = {look.name: look for look in looks(dataset.manifest)}
    assert (found["value"].null, found["value"].least, found["value"].most) == ("12.5%", "0.5", "199.5")
    assert found["word"].top[0][1] == pytest.approx(2 / 3, abs=0.01)
    assert found["at"].least == "2023-11-14T22:13:20Z"
    assert sum(found["user"].histogram) == pytest.approx(400, abs=8)
    assert found["user"].distinct == "about 400"
    train = {look.name: look for look in looks(dataset.manifest, "train")}
    assert train["user"].rows == len(dataset.split("train")) < 400
    assert repr(dataset).startswith(f"<Dataset {tmp_path / 'out'}, version 1: 400 rows (train ")
    assert repr(dataset.split("val")) == (
        f"<Split val of {tmp_path / 'out'}, version 1: {len(dataset.split('val'))} rows>"
    )


def test_values_in_words() -> None:
    assert bars([0, 1, 4, 8]) == " ▁▄█"
    assert bars([]) == ""
    day: dict[str, object] = {"kind": "date"}
    assert value_text(day, 0) == "1970-01-01"
    assert value_text(day, 2**31 - 1) == "2147483647 d since 1970"
    assert value_text({"kind": "timestamp", "time": {"zone": None}}, -1) == "1969-12-31T23:59:59.999999"
    assert value_text({"kind": "timestamp"}, "9223372036854775807").endswith("us since 1970")
    assert value_text({"kind": "integer"}, "9223372036854775807") == "9223372036854775807"


def test_a_dataset_without_statistics_or_rows_is_shown(tmp_path: Path) -> None:
    export(tmp_path / "none", pa.table({"a": pa.array([], pa.float64()), "b": pa.array([], pa.string())}))
    Page(open_dataset(tmp_path / "none").page())
    kinds: dict[str, Any] = {"odd": pa.array([float("nan"), float("inf"), None])}
    kinds["null"] = pa.array([None] * 3, pa.int64())
    kinds["big"] = pa.array([np.iinfo(np.int64).max] * 3)
    export(tmp_path / "odd", pa.table(kinds))
    Page(open_dataset(tmp_path / "odd").page())
    manifest = open_dataset(tmp_path / "odd").manifest
    columns = [{**column, "stats": {}} for column in manifest.columns]
    bare = type(manifest)({**manifest.document, "columns": columns}, manifest.files)
    assert looks(bare) == []
