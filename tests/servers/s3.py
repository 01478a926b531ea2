"""A real S3 server for tests: SeaweedFS from packages, private, on loopback, with one key that is right."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyarrow import fs

from tests.servers import process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "s3"
BUCKET = "tests"


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server of objects; `key` and `secret` may do everything."""

    endpoint: str
    key: str
    secret: str

    def filesystem(self, *, secret: str | None = None) -> fs.S3FileSystem:
        """Arrow's way to it, apart from the product's."""
        return fs.S3FileSystem(
            access_key=self.key,
            secret_key=self.secret if secret is None else secret,
            scheme="http",
            endpoint_override=self.endpoint.removeprefix("http://"),
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def folder(self) -> str:
        """A fresh folder of the one bucket: the server makes volumes for each bucket, and has few."""
        return f"{BUCKET}/{secrets.token_hex(6)}"

    def settings(self) -> str:
        """What a `cuetl.toml` says of it; the keys are in `variables`."""
        return (
            f'[storage.test]\nurl = "s3://"\nendpoint = "{self.endpoint}"\n'
            'access_key = "${env:TEST_S3_KEY}"\nsecret_key = "${env:TEST_S3_SECRET}"\n'
        )

    def variables(self) -> dict[str, str]:
        """The environment in which `settings` finds the keys."""
        return {"TEST_S3_KEY": self.key, "TEST_S3_SECRET": self.secret}


def program() -> Path | None:
    """SeaweedFS, where it is installed beside the other servers."""
    found = process.SHIPPED / "bin" / "weed"
    return found if found.exists() else None


@contextlib.contextmanager
def server() -> Iterator[S3Server]:
    """A server that was started here and ends with the block.

    Raises:
        ServerError: It did not come up.
    """
    with process.folder("s3") as home:
        key, secret = "test", secrets.token_hex(12)
        config = home / "s3.json"
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "t", "credentials": [{"accessKey": key, "secretKey": secret}], "actions": rights}
        config.write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
        data = home / "data"
        data.mkdir()
        user = process.as_user()
        if user:
            for path in (config, data):
                shutil.chown(path, "nobody", "nogroup")
        config.chmod(0o600)
        ports = [process.free_port() for _ in range(8)]
        names: tuple[str, ...] = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc")
        names += ("filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc")
        command = [str(program()), "-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        command += [f"-dir={data}", *(f"-{name}={port}" for name, port in zip(names, ports, strict=True))]
        command += ["-volume.max=20", "-master.volumeSizeLimitMB=256", "-filer", "-s3", f"-s3.config={config}"]
        command += [
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.iam=false",
            "-s3.autoCreateBucket=false",
            "-master.telemetry=false",
        ]
        found = S3Server(f"http://127.0.0.1:{ports[6]}", key, secret)
        running = process.start(command, home, user=user, ready=lambda: _answers(found, ports[6]))
        try:
            yield found
        finally:
            running.stop(first=signal.SIGKILL)  # what it holds is thrown away


def _answers(found: S3Server, port: int) -> bool:
    """Whether it takes an object and gives it back: its parts come up one after the other."""
    with socket.socket() as one:
        one.settimeout(1)
        if one.connect_ex(("127.0.0.1", port)):
            return False
    reached = found.filesystem()
    try:
        reached.create_dir(BUCKET)
        with reached.open_output_stream(f"{BUCKET}/ready") as out:
            out.write(b"1")
        with reached.open_input_stream(f"{BUCKET}/ready") as file:
            return bool(file.read() == b"1")
    except OSError:
        return False
