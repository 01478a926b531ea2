"""Operations on a dataset in a process to which the kernel refuses the exchange of two folders, as FUSE and NFS do."""

from __future__ import annotations

import ctypes
import json
import platform
import struct
import sys
from pathlib import Path

from etl.core.errors import ConfigError
from etl.tensors import operations
from etl.tensors.erase import erase
from tests.datasets import export
from tests.dying import rows, table

RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
NO_NEW_PRIVS, SECCOMP, FILTER = 38, 22, 2
EINVAL = 22


def refuse_exchange() -> None:
    """Make renameat2(2) with RENAME_EXCHANGE fail with EINVAL in this process, by a seccomp(2) filter."""
    number = RENAMEAT2[platform.machine()]
    load, equal, give = 0x20, 0x15, 0x06
    program = [
        (load, 0, 0, 0),  # the call's number
        (equal, 0, 3, number),
        (load, 0, 0, 16 + 8 * 4),  # its fifth argument: the flags
        (equal, 0, 1, 2),
        (give, 0, 0, 0x00050000 | EINVAL),
        (give, 0, 0, 0x7FFF0000),
    ]
    code = b"".join(struct.pack("<HBBI", *one) for one in program)
    held = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(SECCOMP, FILTER, ctypes.create_string_buffer(header, len(header)), 0, 0) == 0


def main(out: Path) -> None:
    refuse_exchange()
    said: dict[str, object] = {}
    export(out, table(3), mode="replace", run_id="r2")
    said["replaced"] = rows(out)
    export(out, table(4), mode="append", run_id="r3")
    said["appended"] = rows(out)
    operations.rollback(out)
    said["back"] = rows(out)
    try:
        erase(out, ["id=3"])
    except ConfigError:
        said["erased"] = "refused"
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
