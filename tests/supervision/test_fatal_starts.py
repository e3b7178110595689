"""What ends the whole run also does so when it comes out of a start below a supervisor."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from sapwood.actors import Actor, ActorSystem, open_system
from sapwood.supervision import DynamicSupervisor, Supervisor, child, start_child
from sapwood.testing import simulate

FATAL = [MemoryError("full"), trio.TrioInternalError("broken")]


class Starting(Actor):
    """Fails in its plain start, which runs in the supervisor's own task."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def on_start(self) -> None:
        raise self.error


async def failing(error: Exception) -> None:
    await trio.lowlevel.checkpoint()
    raise error


async def begin(system: ActorSystem, spec: Any, kind: Any) -> None:
    if kind is Supervisor:
        await system.spawn(Supervisor, [spec], strategy="one_for_one")
    else:
        await start_child(await system.spawn(DynamicSupervisor), spec)
    await trio.sleep(1)


@pytest.mark.parametrize("error", FATAL, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
@pytest.mark.parametrize("start", [Starting, failing], ids=["actor", "function"])
def test_a_fatal_error_in_a_start_ends_the_run_and_is_no_failed_child(start: Any, kind: Any, error: Exception) -> None:
    async def main() -> None:
        async with open_system() as system:
            await begin(system, child(start, error), kind)

    # Above trio's nurseries, an internal error of trio comes as the cause of another one.
    with pytest.raises(BaseException) as caught:
        simulate(1, main)

    assert error in leaves(caught.value)


def leaves(error: BaseException | None) -> list[BaseException]:
    """Return an error, what its groups consist of, and all their causes."""
    if error is None:
        return []
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return [error, *leaves(error.__cause__), *(leaf for part in parts for leaf in leaves(part))]
