"""Row J16: a monitor of a name binds to whoever holds the name at that moment."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from sapwood import Actor, Request, Running, Runtime, child, handle, message, open_runtime
from sapwood.actors import Down, Killed, SimulatedEnvironment

NAME = ("service", "mail")


@message("test.monitoring.watch")
class Watch(Request[None]):
    pass


class Service(Actor):
    pass


class Watcher(Actor):
    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.downs: list[Down] = []

    @handle
    def watch(self, message: Watch) -> None:
        found = self.runtime.registry.lookup_nowait(NAME)
        assert isinstance(found, Running)
        self.monitor(found.ref)

    @handle
    def went_down(self, message: Down) -> None:
        self.downs.append(message)


@pytest.mark.row("J16")
async def test_a_name_that_passes_on_does_not_take_the_monitor_along(autojump_clock: MockClock) -> None:
    async with open_runtime(environment=SimulatedEnvironment()) as runtime:
        first = await runtime.spawn(Service, key=NAME)
        watcher = await runtime.spawn(Watcher, runtime)
        await watcher.ask(Watch())

        first.kill()
        await first.wait_stopped()
        second = await runtime.get_or_start(NAME, child(Service, key=NAME))
        assert isinstance(second, Running)
        second.ref.kill()
        await second.ref.wait_stopped()

        [down] = (await watcher.get_state())["downs"]
        assert down.ref is first
        assert down.ref.key == NAME
        assert down.reason == Killed()
