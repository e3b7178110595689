"""Writes and reads the deepest value that is allowed, in a thread with little stack."""

from __future__ import annotations

import threading
from typing import Any

from sapwood.actors import record
from sapwood.persistence import decode, encode


@record("deep.holder")
class Holder:
    value: Any


def round_trip() -> None:
    value: Any = 1
    for _ in range(99):
        value = (value,)
    assert decode(encode(Holder([value]))).value == [value]


threading.stack_size(512 * 1024)
thread = threading.Thread(target=round_trip)
thread.start()
thread.join()
