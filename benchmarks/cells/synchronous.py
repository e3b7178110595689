"""Workloads for libraries without a loop: the coroutines never wait, so they are driven by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.cells.workloads import Subject


class Synchronous(Subject):
    """The steps that are the same for everything without a loop."""

    def run(self, main: Callable[[], Awaitable[dict[str, float]]]) -> dict[str, float]:
        try:
            figures: dict[str, float] = self.drive(main)
            return figures
        finally:
            self.close()

    def close(self) -> None:
        """Clean up."""

    @staticmethod
    def drive(job: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine that never waits."""
        try:
            next(iter(job().__await__()))
        except StopIteration as end:
            return end.value
        raise RuntimeError("expected a coroutine that never waits; this one did")
