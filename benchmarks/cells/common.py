"""What all libraries are measured by: names, units and sizes of the workloads, and how to measure memory."""

from __future__ import annotations

import gc
import resource
import threading
import time
from pathlib import Path
from typing import Any, Final

UNITS: Final = {
    "W1 tell": "us/message",
    "W2a ask": "us/call",
    "W2a ask inline": "us/call",
    "W2b ask, 100 callers": "us/call",
    "W3 fan to 1,000": "us/message",
    "W4 start": "us/actor",
    "W4 stop": "us/actor",
    "W5 memory": "KB/actor",
    "W6 lookup": "ns",
    "W7 crash to answer": "us",
    "W8 ring of 1,000": "us/hop",
}

WORKLOADS: Final = ("w1", "w2a", "w2b", "w3", "w4", "w5", "w6", "w7", "w8")

TELLS: Final = 200_000
ASKS: Final = 10_000
CALLERS: Final = 100
FAN: Final = 1_000
FAN_ROUNDS: Final = 50
POPULATION: Final = 10_000
NAMES: Final = 2_000
LOOKUPS: Final = 200_000
CRASHES: Final = 200
RING: Final = 1_000
HOPS: Final = 50_000


clock: Final = time.process_time
"""Processor time: a cell waits for nothing but the processor, so on an idle machine it is the time on the wall, and on
a busy one it leaves out what other programs took."""


class Latch:
    """Sets an event when it has been set so many times itself."""

    def __init__(self, event: Any, count: int) -> None:
        self.event = event
        self.left = count
        self.lock = threading.Lock()  # some libraries have a thread for each actor

    def set(self) -> None:
        with self.lock:
            self.left -= 1
            last = not self.left
        if last:
            self.event.set()


class Unsupported(Exception):
    """A library has nothing that a workload could measure; the text says what is missing."""


def resident_kb() -> float:
    """Return the resident memory of this process in KB, after a collection."""
    gc.collect()
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmRSS:"):
                return float(line.split()[1])
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
