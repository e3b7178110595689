"""The inbox: what people say to an agent, taken durably before they are told so."""

from __future__ import annotations

from typing import cast, get_args

from sapwood.actors import Environment
from sapwood.agents._log import Log
from sapwood.agents._requests import (
    GRACE,
    CancelQueued,
    EditQueued,
    QueueAnswer,
    Receipt,
    Reset,
    SendMessage,
    WhileRunning,
    receipt_of,
)
from sapwood.agents._run_events import RunEvents
from sapwood.agents._run_keeper import RunKeeper
from sapwood.conversation import Delivery, QueuedMessage, State, UserMessage, journal
from sapwood.errors import InvalidOption, RunInProgress
from sapwood.tools import Toolbox


class Inbox:
    """Takes messages: at once, or into the queue of the open run.

    Args:
        environment: Wall clock and ids.
        log: The conversation.
        runs: Keeps the run.
        toolbox: The tools that a run can be begun for.
    """

    def __init__(self, environment: Environment, log: Log, runs: RunKeeper, toolbox: Toolbox) -> None:
        self._environment = environment
        self._log = log
        self._runs = runs
        self._toolbox = toolbox
        self._events = RunEvents(environment)

    async def take(self, message: SendMessage) -> Receipt:
        """Add a message to the conversation and run, or to the queue; durable when it returns.

        Raises:
            InvalidOption: if the text is blank, or an option is none.
            RunInProgress: if a run is open and the message may not wait for it; nothing was changed.
        """
        self._check(message)
        state = self._log.state
        earlier = receipt_of(state, message.message_id) if message.message_id else None
        if earlier is not None:
            # The same message, sent again because its receipt was lost.
            return earlier
        said = UserMessage(message.text, id=message.message_id or self._environment.new_id("msg_"))
        if state.run is not None and (message.while_running == "reject" or message.until is not None):
            raise RunInProgress(self._log.agent_id, state.run.id, state.run.phase)
        if state.run is not None and self._must_wait(state, message.while_running):
            return await self._queue(said, message)
        # Whatever waited for the end of an earlier run was said before.
        taken_back = self._events.roll_back(state) if message.while_running == "rollback" else []
        await self._runs.begin(
            *self._events.supersede(state),
            *taken_back,
            self._events.start("message", message.until),
            *self._events.deliveries(state),
            journal.MessageAdded(said),
        )
        run = self._log.state.run
        return Receipt(said.id, run.id if run is not None else "", queued=False)

    def _check(self, message: SendMessage) -> None:
        if not message.text.strip():
            raise InvalidOption("send: expected a text that is not blank")
        for name, value, known in (
            ("delivery", message.delivery, get_args(Delivery)),
            ("while_running", message.while_running, get_args(WhileRunning)),
        ):
            if value not in known:
                raise InvalidOption(f"send, {name}: expected one of {', '.join(known)}; got {value!r}")
        for tool in message.until.tools if message.until is not None else ():
            if tool not in self._toolbox:
                near = self._toolbox.nearest(tool)
                raise InvalidOption(
                    f"send, until: there is no tool {tool!r}" + (f"; did you mean {near!r}?" if near else "")
                )

    def _must_wait(self, state: State, while_running: WhileRunning) -> bool:
        """Say whether a message goes into the queue, given that a run is open.

        A run that waits for people gives way to what somebody says instead of deciding; one that is paused or waits
        for work elsewhere does so only if it is to be replaced.
        """
        assert state.run is not None
        if self._runs.task is not None or state.run.phase == "running":
            return True
        return state.run.phase != "interrupted" and while_running == "queue"

    async def _queue(self, said: UserMessage, message: SendMessage) -> Receipt:
        item = QueuedMessage(said.id, said, message.delivery, self._environment.wall())
        await self._log.commit(journal.MessageQueued(item))
        if self._runs.task is not None and message.while_running in ("replace", "rollback"):
            self._runs.replace("rollback" if message.while_running == "rollback" else "replace", GRACE)
        return Receipt(said.id, "", queued=True)

    async def edit(self, message: EditQueued) -> QueueAnswer:
        """Change the text of a message that still waits.

        Raises:
            InvalidOption: if the text is blank.
        """
        if not message.text.strip():
            raise InvalidOption("edit_queued: expected a text that is not blank; to take it back use cancel_queued")
        answer = self._answer(message.message_id)
        if answer != "done":
            return answer
        await self._log.commit(journal.QueuedMessageEdited(message.message_id, message.text))
        found = self._delivered(message.message_id)
        return "done" if found is None or found.text == message.text else "delivered"

    async def cancel(self, message: CancelQueued) -> QueueAnswer:
        """Take back a message that still waits."""
        answer = self._answer(message.message_id)
        if answer != "done":
            return answer
        await self._log.commit(journal.MessageUnqueued(message.message_id, "cancelled"))
        return "done" if self._delivered(message.message_id) is None else "delivered"

    async def reset(self, message: Reset) -> bool:
        """Begin the conversation anew; true.

        Raises:
            RunInProgress: if a run is open; nothing was changed.
        """
        run = self._log.state.run
        if run is not None:
            raise RunInProgress(self._log.agent_id, run.id, run.phase)
        await self._log.commit(journal.StateReset(message.keep_metadata))
        return True

    def _answer(self, message_id: str) -> QueueAnswer:
        if any(item.id == message_id for item in self._log.state.queue):
            return "done"
        return "unknown" if self._delivered(message_id) is None else "delivered"

    def _delivered(self, message_id: str) -> UserMessage | None:
        found = (each for each in self._log.state.messages if each.id == message_id)
        return cast("UserMessage | None", next(found, None))
