"""The events of one run."""

from __future__ import annotations

import trio

from sapwood.agents._publisher import Subscription
from sapwood.agents._requests import Receipt
from sapwood.agents._waits import Wait
from sapwood.conversation import MessageCompleted, RunFinished, StreamEvent


class RunStream:
    """The events of the run that a message led to, from the message to the end of the run.

    Iteration ends after the `RunFinished` of a run that has ended, is paused or waits for people, or when the agent is
    stopped; a run that waits for asynchronous tools is followed on. A server that crashes and is restarted goes on
    with the same run, and so does the iteration. A message that was sent again after its run has no events any more,
    only the result. A message that waits in the queue of a run which fails goes on waiting, until the next message.

    Attributes:
        receipt: What the server said when it took the message.
        result: The end of the run, once it has been read.
    """

    def __init__(self, subscription: Subscription, receipt: Receipt, result: RunFinished | None, wait: Wait) -> None:
        self.receipt = receipt
        self.result = result
        self._subscription = subscription
        self._run_id = receipt.run_id
        self._wait = wait
        if result is not None:
            wait.end()

    def __aiter__(self) -> RunStream:
        return self

    async def __anext__(self) -> StreamEvent:
        if self.result is not None:
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        event = await anext(self._subscription)
        if isinstance(event, MessageCompleted) and event.message.id == self.receipt.message_id:
            self._run_id = event.run_id
        if isinstance(event, RunFinished) and event.run_id == self._run_id and self._run_id:
            # One that waits for work elsewhere goes on by itself.
            self.result = None if event.outcome == "waiting" else event
            if self.result is not None:
                self._wait.end()
        return event

    async def finish(self) -> RunFinished | None:
        """Read to the end of the run; None if the agent was stopped before."""
        async for _ in self:
            pass
        return self.result
