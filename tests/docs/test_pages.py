"""Every command and snippet of the pages in docs/ runs, in the page's order, and prints what the page says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.command import cuetl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.s3 import S3Server

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DEMO = "cuetl demo --to shop\n"
PAGES = (
    *("how-to/numpy.md", "how-to/versions.md", "how-to/formats.md", "how-to/order.md", "how-to/pipelines.md"),
    *("how-to/prepare.md", "how-to/drift.md", "how-to/serving.md", "how-to/onnx.md", "how-to/churn.md"),
    *("how-to/windows.md", "how-to/checks.md"),
)
FRAMEWORK_PAGES = {
    "tutorial/database-to-model.md": ("torch",),
    "how-to/jax.md": ("jax",),
    "how-to/tensorflow.md": ("tensorflow",),
    "how-to/formats.md": ("torch", "tensorflow"),
}
"""Page → what it needs. Of a page that is in both lists, only some blocks need a framework: `python torch`."""
STORED = "how-to/storage.md"
"""On an S3 server; else with a folder in the place of its bucket."""
BUCKET = "s3://team"


@dataclass(frozen=True, slots=True)
class Block:
    """A command or snippet, what it needs beside the product, and what it prints: None where the page does not say."""

    language: str
    needs: str
    code: str
    line: int
    says: str | None


def blocks(page: Path) -> list[Block]:
    """The page's sh and python blocks; a text block after one is what it prints."""
    found: list[Block] = []
    text = page.read_text()
    for match in re.finditer(r"^```(\w*) ?(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        language, needs, code = match.groups()
        if language in ("sh", "python"):
            found.append(Block(language, needs, code, text.count("\n", 0, match.start(3)), None))
        elif language == "text":
            last = found.pop()
            assert last.says is None, f"{page}: two blocks of output after one of code"
            found.append(replace(last, says=code))
    return found


def matches(says: str, printed: str) -> bool:
    """Whether this was printed; … on a page stands for anything."""
    parts = [re.escape(part.rstrip()) for part in says.rstrip().split("…")]
    return re.fullmatch(".*?".join(parts), printed.rstrip(), re.DOTALL) is not None


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first command of every page makes: once for all of them."""
    folder = tmp_path_factory.mktemp("demo")
    done = cuetl(*DEMO.split()[1:], cwd=folder)
    assert done.code == 0, done.err
    return folder / "shop"


def check(
    page: str, frameworks: tuple[str, ...], shop: Path, folder: Path, *,
    env: Mapping[str, str] | None = None, bucket: str = BUCKET,
) -> None:  # fmt: skip
    """Run the page in a folder of its own, with `bucket` wherever it says `BUCKET`."""
    kept = [block for block in blocks(DOCS / page) if not block.needs or block.needs in frameworks]
    assert kept[0].code == DEMO
    rest = kept[1:]
    shutil.copytree(shop, folder / "shop")
    work = folder / ".page"
    work.mkdir()
    (work / "blocks").write_text(json.dumps([(b.language, b.code.replace(BUCKET, bucket), b.line) for b in rest]))
    scripts = Path(sys.executable).parent
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("CUETL_", "PG")) and k not in ("RANK", "WORLD_SIZE")
    }
    script = [sys.executable, "-W", "error", str(Path(__file__).with_name("page.py")), page]
    done = subprocess.run(
        [*script, str(work / "blocks"), str(work / "said")],
        cwd=folder,
        env={**clean, "PYTHONPATH": "", "PATH": f"{scripts}:{os.environ['PATH']}", **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, f"{page}: {done.stderr}"
    for block, said in zip(rest, json.loads((work / "said").read_text()), strict=True):
        printed = said.replace(bucket, BUCKET)
        if block.says is not None:
            assert matches(block.says, printed), f"{page}:{block.line}: {block.code}printed\n{printed}not\n{block.says}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_written(page: str, shop: Path, tmp_path: Path) -> None:
    check(page, (), shop, tmp_path)


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.framework(*f)) for p, f in FRAMEWORK_PAGES.items()])
def test_a_page_for_a_framework_runs_as_written(page: str, shop: Path, tmp_path: Path) -> None:
    check(page, FRAMEWORK_PAGES[page], shop, tmp_path)


def test_the_page_of_storages_runs_with_a_folder_for_its_bucket(shop: Path, tmp_path: Path) -> None:
    env = {"CUETL_CACHE": str(tmp_path / "cache"), "S3_ENDPOINT": "", "S3_KEY": "", "S3_SECRET": ""}
    check(STORED, (), shop, tmp_path, env=env, bucket=f"local://{tmp_path}/team")


@pytest.mark.slow
def test_the_page_of_storages_runs_as_written_on_a_server(shop: Path, tmp_path: Path, s3: S3Server) -> None:
    s3.filesystem().create_dir(BUCKET.removeprefix("s3://"))
    env = {"CUETL_CACHE": str(tmp_path / "cache"), "S3_ENDPOINT": s3.endpoint}
    check(STORED, (), shop, tmp_path, env={**env, "S3_KEY": s3.key, "S3_SECRET": s3.secret})


def test_every_page_is_run_and_says_what_it_prints() -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert pages == {*PAGES, *FRAMEWORK_PAGES, STORED}
    for page in pages:
        found = blocks(DOCS / page)
        assert any(block.says for block in found), page
        assert {block.needs for block in found} <= {"", *FRAMEWORK_PAGES.get(page, ())}, page


def test_output_is_held_to_every_word_of_a_page() -> None:
    assert matches("a … b\n", "a 1\n2 b\n")
    assert not matches("a … b\n", "a 1 c\n")
    assert not matches("a\n", "a b\n")
    assert not matches("a.\n", "ab\n")
