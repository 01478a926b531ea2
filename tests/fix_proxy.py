"""A TCP proxy between a client and a real server, whose connections a test can cut, stall and slow down."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK = 64 * 1024


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + (len(content) + 4).to_bytes(4, "big") + content


UNKNOWN = _message(b"E", b"SERROR\0C0A000\0Munimplemented: this syntax\0\0") + _message(b"Z", b"E")
"""What a server says that has no such statement."""
POOLED = _message(b"E", b"SFATAL\0C08P01\0Mtransaction blocks not allowed in statement pooling mode\0\0")
"""What PgBouncer says before it hangs up."""
_STARTUP = 196608
"""Protocol 3.0: the last message without a kind before it."""


@dataclass(slots=True)
class _Asked:
    """A client's messages on their way to a PostgreSQL server."""

    left: bytes = b""
    started: bool = False

    def without(self, block: bytes, beginning: bytes) -> tuple[bytes, int]:
        """The whole messages so far but for statements that begin so, and how many of those there were."""
        self.left += block
        passed, found = b"", 0
        while True:
            kind = 1 if self.started else 0
            if len(self.left) < kind + 4:
                return passed, found
            size = kind + int.from_bytes(self.left[kind : kind + 4], "big")
            if len(self.left) < size:
                return passed, found
            message, self.left = self.left[:size], self.left[size:]
            if not self.started:
                self.started = int.from_bytes(message[4:8], "big") == _STARTUP
            elif message[:1] == b"Q" and message[5:].lower().startswith(beginning):
                found += 1
                continue
            passed += message


@dataclass(slots=True)
class _Link:
    """One proxied connection: the client's socket, the server's, and the bytes that came from the server."""

    client: socket.socket
    server: socket.socket
    received: int = 0


@dataclass(slots=True)
class Proxy:
    """Listens on 127.0.0.1:`port` and passes bytes on to `target`.

    `cut_after`: each new connection is reset once that many bytes came from the server, `cuts` times in all;
    `bytes_per_second` slows what comes from the server, per connection.
    """

    target: tuple[str, int]
    cut_after: int | None = None
    cuts: int = 1
    bytes_per_second: int | None = None
    refuses: bytes | None = None
    """PostgreSQL's statements that begin so are answered as by a server that does not know them, unseen by it."""
    refusal: bytes = UNKNOWN
    """The answer; without a ReadyForQuery at its end the client is hung up on."""
    refused: int = 0
    connections: int = 0
    """Connections accepted so far."""
    cut_count: int = 0
    """Connections reset so far."""
    _listener: socket.socket = field(default_factory=socket.socket)
    _flowing: threading.Event = field(default_factory=threading.Event)
    _closing: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _links: list[_Link] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def url(self, url: str) -> str:
        """The same URL through this proxy."""
        host, port = self.target
        if f"{host}:{port}" not in url:
            raise AssertionError(f"{host}:{port} is not in the URL")
        return url.replace(f"{host}:{port}", f"127.0.0.1:{self.port}")

    def cut(self) -> int:
        """Reset every connection that is open now, as a cable that is pulled and answered for; how many there were."""
        with self._lock:
            links = list(self._links)
        for link in links:
            self._reset(link)
        return len(links)

    def stall(self) -> None:
        """Pass nothing on until `resume`; the connections stay open, as when a network goes silent."""
        self._flowing.clear()

    def resume(self) -> None:
        """Pass bytes on again."""
        self._flowing.set()

    def open(self) -> None:
        """Start to listen."""
        self._flowing.set()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(64)
        self._spawn(self._accept)

    def close(self) -> None:
        """Reset all, stop listening, end the threads."""
        self._closing.set()
        self._flowing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in list(self._links):
            self._reset(link)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), thread.name

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True, name=f"proxy-{target.__name__}")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target, 10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            if self.bytes_per_second is not None:
                # A slow line keeps the sender waiting: the system's own buffers would take megabytes at once.
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BLOCK)
            link = _Link(client, server)
            with self._lock:
                self.connections += 1
                self._links.append(link)
            self._spawn(self._pump, link, client, server)
            self._spawn(self._pump, link, server, client)

    def _pump(self, link: _Link, source: socket.socket, sink: socket.socket) -> None:
        down = source is link.server
        pause = threading.Event()
        asked = _Asked()
        with contextlib.suppress(OSError):
            while True:
                size = BLOCK if self.bytes_per_second is None else max(1, min(BLOCK, self.bytes_per_second // 20))
                block = source.recv(size)
                self._flowing.wait()
                if not block:
                    sink.shutdown(socket.SHUT_WR)
                    return
                if down:
                    link.received += len(block)
                    if self._due(link):
                        self._reset(link)
                        return
                    if self.bytes_per_second is not None:
                        pause.wait(len(block) / self.bytes_per_second)
                elif self.refuses is not None:
                    block, found = asked.without(block, self.refuses)
                    if found:
                        self.refused += found
                        source.sendall(self.refusal)
                        if self.refusal == POOLED:
                            source.shutdown(socket.SHUT_WR)
                sink.sendall(block)

    def _due(self, link: _Link) -> bool:
        with self._lock:
            return self.cut_after is not None and link.received > self.cut_after and self.cut_count < self.cuts

    def _reset(self, link: _Link) -> None:
        with self._lock:
            if link not in self._links:
                return
            self._links.remove(link)
            self.cut_count += 1
        for end in (link.client, link.server):
            with contextlib.suppress(OSError):
                # Linger 0: the peer gets a reset, not an orderly end.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.fixture
def proxy_to() -> Iterator[Callable[[str, int], Proxy]]:
    """Make proxies to a host and port; they are closed at the end of the test."""
    with contextlib.ExitStack() as stack:

        def make(host: str, port: int) -> Proxy:
            proxy = Proxy((host, port))
            proxy.open()
            stack.callback(proxy.close)
            return proxy

        yield make
