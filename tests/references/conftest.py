"""A Redis server of one's own, which may be killed and started again."""

from __future__ import annotations

import gc
import shutil
import signal
import socket
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

SERVER = shutil.which("redis-server")


@attrs.define(eq=False)
class RedisServer:
    """A server on a free port of this machine that writes every change to its disk before it answers."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, and wait until it says that it is ready."""
        assert SERVER is not None
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder), "--save", ""]
        durable = ["--appendonly", "yes", "--appendfsync", "always"]
        self.process = subprocess.Popen([SERVER, *options, *durable], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if b"Ready to accept connections" in line:
                return
        raise AssertionError("redis-server ended by itself")

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        self.process = None

    def forget_everything(self) -> None:
        """Delete all keys."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            assert connection.recv(100) == b"+OK\r\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if SERVER is None:
        pytest.skip("there is no redis-server on the PATH")
    server = RedisServer(tmp_path_factory.mktemp("redis"), free_port())
    server.start()
    yield server
    if server.process is not None:
        server.kill()


@pytest.fixture
def forgotten_buffers() -> Iterator[None]:
    """Collect the buffers that coredis never closes before another test has to hear of them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def redis_server(shared_server: RedisServer, forgotten_buffers: None) -> RedisServer:
    """A server that runs and is empty."""
    if shared_server.process is None:
        shared_server.start()
    shared_server.forget_everything()
    return shared_server
