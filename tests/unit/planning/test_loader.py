"""Files of pipelines: found by file or name, broken ones said in one paragraph, functions found again anywhere."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from etl.core.errors import ConfigError
from etl.planning import loader
from etl.planning.function import FunctionRef, imported, reference

ROOT = Path(__file__).resolve().parents[3]
HEAD = """\
from etl import SQL, Parquet, Tensors, pipeline
"""
CHURN = """\

@pipeline(sources={"orders": SQL("warehouse", table="orders")}, sink=Parquet("lake/churn"))
def churn(orders):
    return orders
"""
LOAD = "import pickle, sys\nprint(pickle.load(sys.stdin.buffer).load()(7))"


def write(folder: Path, name: str, text: str) -> str:
    """A file of that text; its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return str(path)


def refused(text: str) -> str:
    """What loading says."""
    with pytest.raises(ConfigError) as caught:
        loader.load(text)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_file_with_one_pipeline_needs_no_name(tmp_path: Path) -> None:
    file = write(tmp_path, "a.py", HEAD + CHURN)
    one = loader.load(file)
    assert (one.name, one.file, one.line) == ("churn", file, 3)
    assert loader.load(f"{file}:churn") == one
    assert one.function is not None
    assert one.function.load()(7) == 7


def test_of_several_one_must_be_named(tmp_path: Path) -> None:
    more = 'clean = pipeline(name="clean", sources={"rows": SQL("w", table="t")}, sink=Parquet("lake/clean"))\n'
    file = write(tmp_path, "a.py", HEAD + CHURN + more)
    assert [one.name for one in loader.load_all(file)] == ["churn", "clean"]
    assert loader.load(f"{file}:clean").function is None
    assert refused(file) == f"{file} has 2 pipelines: churn, clean. Name one: {file}:churn"
    assert refused(f"{file}:claen") == f"{file} has no pipeline claen. Did you mean clean?"


def test_what_only_a_script_does_is_not_done_and_prints_go_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = HEAD + 'print("loading")\n' + CHURN + 'if __name__ == "__main__":\n    raise SystemExit(churn(1))\n'
    loader.load(write(tmp_path, "a.py", text))
    out, err = capsys.readouterr()
    assert (out, err) == ("", "loading\n")


BROKEN = {
    "an exception": ("x = 1\nx / 0\n", "{file}:2 cannot be loaded: ZeroDivisionError: division by zero, at 'x / 0'"),
    "syntax": ("def f(:\n    pass\n", "{file}:1 is not Python: invalid syntax, at 'def f(:'"),
    "an end": (
        "import sys\nsys.exit(3)\n",
        ("{file}:2 ends the process when it is imported, at 'sys.exit(3)'. "
        'What is to happen only as a script stands under if __name__ == "__main__".'),
    ),
    "a missing module": (
        "import nowhere_to_be_found\n",
        ("{file}:1 cannot be loaded: ModuleNotFoundError: No module named 'nowhere_to_be_found', "
        "at 'import nowhere_to_be_found'"),
    ),
    "a mistake of ours": (
        HEAD + 'rows = SQL("w", table="t", partitions=0)\n',
        "{file}:2: SQL: partitions is 0. It is a whole number from 1 on.",
    ),
    "an unknown keyword": (
        HEAD + 'rows = SQL("w", tabel="t")\n',
        ("{file}:2 cannot be loaded: TypeError: SQL.__init__() got an unexpected keyword argument 'tabel', "
        "at 'rows = SQL(\"w\", tabel=\"t\")'. Did you mean table?"),
    ),
    "an unknown keyword by module": (
        'import etl\netl.pipeline(source={}, sink=etl.Parquet("x"))\n',
        ("{file}:2 cannot be loaded: TypeError: pipeline() got an unexpected keyword argument 'source', "
        "at 'etl.pipeline(source={{}}, sink=etl.Parquet(\"x\"))'. Did you mean sources?"),
    ),
    "no pipeline": ("x = 1\n", "{file} defines no pipeline. Put @etl.pipeline(sources=…, sink=…) on a function."),
    "no bytes of Python": ("x = '\0'\n", "{file}"),
    "a name twice": (
        HEAD + CHURN + CHURN.replace("churn(", "other(").replace("@pipeline(", '@pipeline(name="churn", '),
        '{file} has two pipelines named churn, in lines 3 and 7. Give one another name="…".',
    ),
    "no name": (
        HEAD + 'rows = pipeline(sources={"rows": SQL("w", table="t")}, sink=Parquet("x"))\n',
        "{file}: a pipeline has no name and no function that gives it one",
    ),
    "a function under another name": (
        HEAD + CHURN + "kept = churn\nchurn = None\n",
        "{file} has no function churn. A pipeline's function stays under its own name in its file.",
    ),
    "a function in the place of another": (
        HEAD + CHURN + "kept = churn\ndef churn(orders):\n    return None\n",
        "{file}:3: the function of pipeline churn is not what churn is in its file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_one_paragraph_with_its_line(what: str, tmp_path: Path) -> None:
    text, said = BROKEN[what]
    file = write(tmp_path, "a.py", text)
    message = refused(file)
    assert message.startswith(said.format(file=file))
    assert "\n" not in message


def test_an_error_in_a_sibling_names_the_sibling(tmp_path: Path) -> None:
    sibling = write(tmp_path, "broken_sibling.py", "def made():\n    return {}['key']\n")
    message = refused(write(tmp_path, "a.py", "import broken_sibling\nbroken_sibling.made()\n"))
    assert message == f"{sibling}:2 cannot be loaded: KeyError: 'key', at \"return {{}}['key']\""
    sys.modules.pop("broken_sibling")


def test_siblings_are_found_while_a_file_loads_and_the_path_is_as_before(tmp_path: Path) -> None:
    write(tmp_path, "one_sibling.py", "def same(x):\n    return x\n")
    write(tmp_path, "other_sibling.py", "NAME = 'other'\n")
    text = HEAD + "import one_sibling\nfrom .other_sibling import NAME\nfrom . import other_sibling\n" + CHURN
    before = list(sys.path)
    one = loader.load(write(tmp_path, "a.py", text.replace("return orders", "return one_sibling.same(NAME + orders)")))
    assert sys.path == before
    assert one.function is not None
    assert one.function.load()("s") == "others"
    sys.modules.pop("one_sibling")


def test_two_folders_may_have_siblings_of_one_name(tmp_path: Path) -> None:
    text = HEAD + "import same_sibling\n" + CHURN.replace("return orders", "return same_sibling.NAME")
    found = []
    for name in ("first", "second"):
        write(tmp_path, f"{name}/same_sibling.py", f"NAME = {name!r}\n")
        found.append(loader.load(write(tmp_path, f"{name}/a.py", text)).function)
    assert [ref.load()(0) for ref in found if ref is not None] == ["first", "second"]
    sys.modules.pop("same_sibling")


def test_pipelines_of_other_files_are_not_this_files(tmp_path: Path) -> None:
    write(tmp_path, "first_file.py", HEAD + CHURN)
    second = HEAD + "from first_file import churn\n" + CHURN.replace("churn", "clean")
    assert [p.name for p in loader.load_all(write(tmp_path, "b.py", second))] == ["clean"]
    sys.modules.pop("first_file")


def test_a_helper_of_another_file_may_define_pipelines(tmp_path: Path) -> None:
    helper = """\
    import functools
    def daily(name):
        return pipeline(name=name, sources={"orders": SQL("w", table=name)}, sink=Parquet(name))
    def negated(function):
        @functools.wraps(function)
        def inner(orders):
            return -function(orders)
        return inner
    """
    write(tmp_path, "a_helper.py", HEAD + dedent(helper))
    text = """\
    from a_helper import daily, negated
    plain = daily("plain")
    @daily("churn")
    @negated
    def churn(orders):
        return orders
    """
    file = write(tmp_path, "a.py", text)
    plain, other = loader.load_all(file)
    assert [(one.name, one.file, one.line) for one in (plain, other)] == [("plain", file, 2), ("churn", file, 3)]
    assert other.function is not None
    assert (other.function.file, other.function.load()(7)) == (file, -7)
    done = subprocess.run(
        [sys.executable, "-c", LOAD], input=pickle.dumps(other.function), capture_output=True, check=True, cwd=ROOT
    )
    assert done.stdout == b"-7\n"
    sys.modules.pop("a_helper")


def test_two_pipelines_with_one_target_are_warned_of(tmp_path: Path) -> None:
    other = CHURN.replace("def churn", "def clean").replace("lake/churn", "lake/churn/")
    file = write(tmp_path, "a.py", HEAD + CHURN + other)
    with pytest.warns(UserWarning, match="pipelines churn and clean both publish to lake/churn"):
        assert len(loader.load_all(file)) == 2


def test_missing_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "churn.py", HEAD + CHURN)
    assert refused(str(tmp_path / "chrun.py")) == f"there is no file {tmp_path}/chrun.py. Did you mean churn.py?"
    monkeypatch.setenv("CUETL_PIPELINES", str(tmp_path / "none"))
    assert refused("churn").startswith(f"there is no folder {tmp_path}/none")


def test_names_are_looked_for_in_the_folder_of_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUETL_PIPELINES", str(tmp_path))
    write(tmp_path, "a.py", HEAD + CHURN)
    write(tmp_path, "deep/b.py", HEAD + CHURN.replace("churn", "clean"))
    write(tmp_path, "bad.py", "from etl import pipeline\n1 / 0\n")
    write(tmp_path, "_hidden.py", "from etl import pipeline\n1 / 0\n")
    write(tmp_path, "features.py", "1 / 0\n")
    assert [path.name for path in loader.files()] == ["a.py", "bad.py", "b.py"]
    assert loader.load("clean").file == str(tmp_path / "deep/b.py")
    assert refused("claen") == f"there is no pipeline claen in {tmp_path}. Did you mean clean?"
    assert "bad.py:2 cannot be loaded" in refused("bad")
    write(tmp_path, "c.py", HEAD + CHURN)
    assert refused("churn").startswith(f"2 files have a pipeline churn: {tmp_path}/a.py, {tmp_path}/c.py. Name one: ")


def test_another_process_finds_the_function_by_its_reference(tmp_path: Path) -> None:
    one = loader.load(write(tmp_path, "a.py", HEAD + CHURN))
    code = "import pickle, sys\nref = pickle.load(sys.stdin.buffer)\nprint(ref.load()(7), ref.load() is ref.load())"
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, input=pickle.dumps(one.function), capture_output=True, check=True, cwd=ROOT)
    assert done.stdout == b"7 True\n"
    write(tmp_path, "a.py", HEAD + CHURN + "# another\n")
    code = "import pickle, sys\ntry: pickle.load(sys.stdin.buffer).load()\nexcept Exception as e: print(e)"
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, input=pickle.dumps(one.function), capture_output=True, check=True, cwd=ROOT)
    assert done.stdout.decode().strip() == (
        f"{tmp_path}/a.py was changed after this run began. "
        "Start the command again, so that every process reads the same file."
    )


def test_a_changed_file_is_loaded_anew_and_the_old_function_stays(tmp_path: Path) -> None:
    file = write(tmp_path, "a.py", HEAD + CHURN.replace("return orders", "return +orders"))
    first = loader.load(file)
    write(tmp_path, "a.py", HEAD + CHURN.replace("return orders", "return -orders"))  # of the same size, at once
    second = loader.load(file)
    assert first.function is not None
    assert second.function is not None
    assert first.sha256 != second.sha256
    assert (first.function.load()(7), second.function.load()(7)) == (7, -7)


def test_a_function_without_a_file_is_found_in_its_own_process_only() -> None:
    def inner(x: Any) -> Any:
        return x

    for function in (inner, lambda x: x):
        ref = reference(function)
        assert (ref.file, ref.sha256) == ("", "")
        assert pickle.loads(pickle.dumps(ref)).load() is function
    elsewhere = FunctionRef("", "inner", "", "0.0")
    with pytest.raises(ConfigError, match="function inner is in no file"):
        elsewhere.load()


def test_a_file_is_executed_once(tmp_path: Path) -> None:
    file = write(tmp_path, "a.py", "with open(__file__ + '.n', 'a') as n:\n    n.write('x')\n")
    assert imported(file) is imported(file)
    assert not (tmp_path / "__pycache__").exists()
    assert (tmp_path / "a.py.n").read_text() == "x"
