"""`[engine]` of `cuetl.toml`: what is read, and each mistake in it named with what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etl import settings
from etl.core.errors import ConfigError
from etl.settings import Engine, load

if TYPE_CHECKING:
    from pathlib import Path


def read(folder: Path, text: str) -> Engine:
    (folder / "cuetl.toml").write_text(f"[engine]\n{text}\n", encoding="utf-8")
    return load(folder, {}).engine


def test_keys_become_one_value_and_what_is_not_said_is_ours_to_choose(tmp_path: Path) -> None:
    found = read(tmp_path, 'devices = [1, "GPU-8a56"]\nrmm_maximum_pool_size = 0.5\nmemory_limit = "20 GB"')
    assert found == Engine(devices=("1", "GPU-8a56"), rmm_maximum_pool_size=0.5, memory_limit="20 GB")
    assert load(tmp_path / "none", {}).engine == Engine()


def test_every_key_is_a_field_and_the_other_way_round() -> None:
    assert sorted(settings.ENGINE) == sorted(Engine.__dataclass_fields__)


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("rmm_asinc = true", "unknown key rmm_asinc", "rmm_async"),
        ("jit_unspill = true", "jit_unspill cannot be set", "removed it in 26.06"),
        ("explicit-comms = true", "explicit-comms cannot be set", "Dask's own tasks"),
        ("rmm_managed_memory = true", "rmm_managed_memory cannot be set", "NVLink"),
        ("rmm_async = 1", "rmm_async is not true or false", ""),
        ("rmm_pool_size = true", "rmm_pool_size is not a whole number or a number with a point or text", ""),
        ("threads_per_worker = 0", "threads_per_worker is less than 1", ""),
        ('devices = [0, "0"]', "devices are not different", "Write"),
        ("devices = [0.5]", "devices are not different", "Write"),
    ],
)
def test_a_mistake_is_named_with_what_to_write(tmp_path: Path, text: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read(tmp_path, text)
    assert hint in (caught.value.hint or "")
