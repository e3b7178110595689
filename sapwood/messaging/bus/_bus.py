"""The bus: named participants, and every way to send to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import trio

from sapwood.actors import Ref
from sapwood.errors import InvalidOption, UnknownParticipant
from sapwood.messaging.bus._dead_letters import DeadLetterOffice
from sapwood.messaging.bus._desk import Desk
from sapwood.messaging.bus._directory import Consumer
from sapwood.messaging.bus._exchange import Accepted, Exchange, names_of
from sapwood.messaging.bus._gate import check_operation
from sapwood.messaging.bus._history import AuditRecord
from sapwood.messaging.bus._keeper import Dismiss, Watch, bus_tree, start_workers
from sapwood.messaging.bus._metrics import BusMetrics, PairCounters
from sapwood.messaging.bus._options import BatchHandler, BatchOptions, BusOptions, HandlerOptions, Target
from sapwood.messaging.bus._participant import Participant
from sapwood.messaging.bus._reports import DeliveryReport, Operation
from sapwood.messaging.bus._topics import check_pattern
from sapwood.messaging.envelope import Envelope, verify
from sapwood.supervision import ChildSpec

TIMEOUT: Final = 5.0
"""Seconds that a sender waits if not told otherwise."""


class Bus:
    """Carries envelopes between named participants; put `bus_child(bus)` into a supervision tree to run it.

    A participant is one or more handlers under a name: actors, which get envelopes in their own mailbox, or plain and
    async functions, each in a supervised actor of its own. Messages go straight from the sender to those mailboxes,
    so there is no queue in between that could be lost, and a circle of waiting actors is named at once even when it
    passes through the bus. Two messages from one sender to one handler arrive in the order sent, as far as they have
    one priority. Delivery is at most once, unless a handler is registered with `HandlerOptions(delivery=...)`:
    then its messages are in a durable queue until it has handled them.

    All methods must be called in the thread of the runtime.

    Args:
        options: How it behaves; None for the defaults.
    """

    def __init__(self, options: BusOptions | None = None) -> None:
        self._desk = Desk(options or BusOptions())
        self._exchange = Exchange(self._desk)

    def __repr__(self) -> str:
        return f"<Bus {self.name} ({self.state})>"

    # --- participants -----------------------------------------------------------------------------

    async def register(
        self,
        name: str,
        handler: Target,
        options: HandlerOptions | None = None,
        *,
        topics: Iterable[str] = (),
    ) -> Participant:
        """Add a handler under a name, and return what the participant sends with (S1-013, S2-007).

        A name may have many handlers; all get its messages. A function stays registered, and runs, until it is
        unregistered. An actor stays until it ends; restarted, it has a new ref and registers again.

        Args:
            name: Name of the participant.
            handler: A plain or async function of one `Envelope`, or the ref of an actor with `@handle(Envelope)`.
            options: How it gets its messages; None for the defaults.
            topics: Patterns to subscribe to.

        Raises:
            BusUnavailable: if the bus does not run.
            NotAuthorized: if the hook of the bus says no.
            InvalidOption: if the handler is registered under this name already, or an option does not fit it.
            InvalidEnvelope: if a pattern is none.
            ActorDown: if the supervisor of the handlers is just being restarted; nothing was registered.
            UnknownParticipant: if the name was unregistered while its workers started.
        """
        if isinstance(options, BatchOptions):
            raise InvalidOption("register: expected HandlerOptions; got BatchOptions: write register_batch")
        return await self._register(name, handler, options or HandlerOptions(), topics)

    async def register_batch(
        self, name: str, handler: BatchHandler, options: BatchOptions | None = None, *, topics: Iterable[str] = ()
    ) -> Participant:
        """Add a function that takes several messages at once, as a tuple of envelopes (S2-038).

        It is called when a batch is full, or its first message has waited long enough. If it raises, each message of
        the batch is a dead letter. See `register`.
        """
        return await self._register(name, handler, options or BatchOptions(), topics)

    async def _register(
        self, name: str, handler: Target | BatchHandler, options: HandlerOptions, topics: Iterable[str]
    ) -> Participant:
        desk = self._desk
        check_operation(desk, name, "register", name)
        if options.durable and desk.options.queues is None:
            raise InvalidOption(
                f"participant {name!r}, delivery={options.delivery!r}: expected a bus with a store for its queues; "
                "write BusOptions(queues=lambda: runtime.store)"
            )
        patterns = [check_pattern(pattern) for pattern in topics]
        if isinstance(handler, Ref) and not handler.alive:
            raise InvalidOption(f"participant {name!r}: expected a live actor; {handler!r} has ended")
        consumer = desk.directory.add(name, handler, options)
        if isinstance(handler, Ref):
            assert desk.keeper is not None
            desk.keeper.tell(Watch(handler))
            await trio.lowlevel.checkpoint()
        else:
            try:
                await start_workers(desk, consumer)
            except BaseException:
                self._retire(consumer)
                desk.directory.remove_consumer(consumer)
                raise
        if consumer.removed:
            raise UnknownParticipant(self.name, name, self.participants())
        consumer.ready = True
        for pattern in patterns:
            desk.subscriptions.add(name, pattern)
        return Participant(self, self._exchange, name)

    def client(self, name: str) -> Participant:
        """Return what somebody sends with who takes no messages."""
        return Participant(self, self._exchange, name)

    def unregister(self, name: str) -> bool:
        """Remove a participant with all its handlers and subscriptions; say whether it was there (S2-007).

        No handler of it starts after this; messages that still wait for it become dead letters.

        Raises:
            BusUnavailable: if the bus does not run.
            NotAuthorized: if the hook of the bus says no.
        """
        check_operation(self._desk, name, "unregister", name)
        gone = self._desk.directory.remove(name)
        self._desk.subscriptions.remove_all(name)
        for consumer in gone:
            self._retire(consumer)
        return bool(gone)

    def _retire(self, consumer: Consumer) -> None:
        consumer.removed = True
        if consumer.function is None:
            return
        for ref in consumer.refs:
            if ref is not None and ref.alive and self._desk.keeper is not None:
                self._desk.keeper.tell(Dismiss(ref))

    def participants(self) -> list[str]:
        """Return the names, in the order in which they were registered."""
        return list(self._desk.directory)

    def subscribe(self, name: str, pattern: str) -> bool:
        """Have a participant get what is published on matching topics; say whether that is new (S2-008).

        Args:
            name: The participant.
            pattern: A topic; `a.*` for everything below `a` at any depth; `*` for everything (C6).

        Raises:
            UnknownParticipant: if the name is not registered.
            InvalidEnvelope: if the pattern is none.
            BusUnavailable, NotAuthorized: see `register`.
        """
        check_pattern(pattern)
        check_operation(self._desk, name, "subscribe", pattern)
        if name not in self._desk.directory:
            raise UnknownParticipant(self.name, name, self.participants())
        return self._desk.subscriptions.add(name, pattern)

    def unsubscribe(self, name: str, pattern: str) -> bool:
        """Take a subscription back; say whether it was there.

        Raises:
            BusUnavailable, NotAuthorized: see `register`.
        """
        check_operation(self._desk, name, "unsubscribe", pattern)
        return self._desk.subscriptions.remove(name, pattern)

    def subscriptions(self, name: str) -> tuple[str, ...]:
        """Return the patterns of a participant, oldest first."""
        return self._desk.subscriptions.of(name)

    # --- sending ----------------------------------------------------------------------------------

    async def send(
        self, envelope: Envelope[Any], *, wait: bool = False, timeout: float | None = TIMEOUT
    ) -> DeliveryReport:
        """Send a message to its recipient; without one publish it on its topic; without either, broadcast it.

        A broadcast reaches every participant but the sender; so does a publication that the sender has subscribed to
        itself (S1-016, S2-010, S2-011). A handler that fails harms no other one (S1-018). What cannot be delivered is
        one dead letter for each participant, and stands in the report (S1-017).

        Args:
            envelope: The message.
            wait: False returns once it is in all mailboxes, with room in each; True once all handlers have run.
            timeout: Seconds to wait for that; None waits for ever. After it, what is in a mailbox is still handled.

        Raises:
            BusUnavailable, NotAuthorized, RateLimitExceeded, ContentRefused, MessageTooLarge, CodecError,
            InvalidEnvelope: nothing was sent then.
        """
        return await self._exchange.send(self._accept(envelope), wait=wait, timeout=timeout)

    def send_nowait(self, envelope: Envelope[Any]) -> DeliveryReport:
        """Send without waiting for anything; where a mailbox is full the message is a dead letter (S2-009, S2-035).

        Raises:
            BusUnavailable and so on: see `send`.
        """
        return self._exchange.post(self._accept(envelope))

    async def multicast(
        self, envelope: Envelope[Any], recipients: Sequence[str], *, wait: bool = False, timeout: float | None = TIMEOUT
    ) -> DeliveryReport:
        """Send a message to chosen participants, each once; see `send` (S2-012).

        Raises:
            InvalidOption: if there are no recipients, or the message has one of its own.
            BusUnavailable and so on: see `send`.
        """
        accepted = self._accept(envelope, "multicast", names_of(envelope, recipients))
        return await self._exchange.send(accepted, wait=wait, timeout=timeout)

    async def route(
        self, envelope: Envelope[Any], *, wait: bool = False, timeout: float | None = TIMEOUT
    ) -> DeliveryReport:
        """Send a message to the participants of the first route that matches it; see `send` (S2-013).

        Without a match it is a dead letter of reason `no_route`.

        Raises:
            BusUnavailable and so on: see `send`.
        """
        return await self._exchange.send(self._accept(envelope, "route"), wait=wait, timeout=timeout)

    async def send_many(
        self, envelopes: Iterable[Envelope[Any]], *, wait: bool = False, timeout: float | None = TIMEOUT
    ) -> list[DeliveryReport]:
        """Send several messages, more urgent ones first, in the order given within one priority (S1-019).

        All are checked before the first one is sent; the reports come in the order given.

        Raises:
            BusUnavailable and so on: see `send`; then none was sent.
        """
        return await self._exchange.send_many(envelopes, trusted=False, wait=wait, timeout=timeout)

    async def request(self, envelope: Envelope[Any], *, timeout: float | None = TIMEOUT) -> Envelope[Any]:
        """Send a request to its recipient and wait for the answer: what its first handler returns (S2-021).

        The answer is an envelope with `reply_to`, of the request's chain. What a handler returns is its payload; what
        is no record stands in an `Answer`.

        Args:
            envelope: The request.
            timeout: Seconds to wait; None waits for ever.

        Raises:
            UnknownParticipant: if the recipient is not registered.
            Undeliverable: if the request expired, was shed or filtered, or its handler was ended.
            AskTimeout: if no answer came in time; the request may still be carried out.
            ActorDown, AskCycle, SelfAsk, MailboxFull: see `Ref.ask`.
            Exception: what the handler raised.
            InvalidOption: if the message has no recipient.
            BusUnavailable and so on: see `send`.
        """
        if envelope.recipient is None:
            raise InvalidOption("request: expected an envelope with recipient=; got None")
        return await self._exchange.ask(self._accept(envelope, "request"), timeout)

    async def receive(self, data: bytes, *, wait: bool = False, timeout: float | None = TIMEOUT) -> DeliveryReport:
        """Take a message in signed form, from outside of this process (S2-049).

        Raises:
            SignatureRefused: if a key that the bus knows did not sign it for its sender; it is in the audit trail.
            InvalidOption: if the bus has no verifiers.
            BusUnavailable and so on: see `send`.
        """
        desk = self._desk
        desk.check_running()
        if not desk.options.verifiers:
            raise InvalidOption("receive: expected a bus with verifiers=; this one cannot tell who signed")
        try:
            envelope = verify(data, *desk.options.verifiers)
        except Exception as error:
            desk.note("?", "send", "signed message", refused=str(error))
            raise
        return await self._exchange.send(self._accept(envelope, trusted=True), wait=wait, timeout=timeout)

    def _accept(
        self,
        envelope: Envelope[Any],
        operation: Operation | None = None,
        recipients: tuple[str, ...] = (),
        *,
        trusted: bool = False,
    ) -> Accepted:
        return self._exchange.accept(self._exchange.check(envelope, operation, recipients, trusted=trusted))

    # --- dead letters -----------------------------------------------------------------------------

    @property
    def dead_letters(self) -> DeadLetterOffice:
        """The dead letters: `inspect`, `get`, `discard`, counters.

        Raises:
            BusUnavailable: before the bus was started for the first time.
        """
        return self._desk.office

    async def requeue(self, letter_id: str, *, timeout: float | None = TIMEOUT) -> DeliveryReport:
        """Send a dead letter again, to the participant that did not handle it, and wait until that has (S2-029).

        All handlers of the participant get it, those that had handled it as well. If it fails again it comes back,
        under its id and with a higher `retry_count`.

        Raises:
            InvalidOption: if the office does not hold the letter.
            BusUnavailable: if the bus does not run; the letter stays.
            StoreUnavailable, DeadLetterMissing: if it is kept in a durable queue, which cannot bring it back; it stays.
        """
        desk = self._desk
        desk.check_running()
        letter = desk.office.take(letter_id)
        if letter is None:
            raise InvalidOption(f"requeue: expected the id of a dead letter that the office holds; got {letter_id!r}")
        kept = desk.directory.keeper_of(letter.id, letter.target)
        if kept is not None:
            return await self._exchange.bring_back(letter, *kept, timeout=timeout)
        return await self._exchange.send(self._exchange.again(letter), wait=True, timeout=timeout)

    # --- looking at it ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name."""
        return self._desk.options.name

    @property
    def state(self) -> str:
        """`not started`, `restarting`, `stopped` or `running`."""
        return self._desk.state

    def history(
        self,
        *,
        agent: str | None = None,
        topic: str | None = None,
        kind: str | None = None,
        correlation_id: str | None = None,
        limit: int | None = 10,
    ) -> list[Envelope[Any]]:
        """Return the newest messages that fit, newest last (S2-016).

        Args:
            agent: Sender, or one of those it went to; None for all.
            topic: The topic; None for all.
            kind: The kind; None for all.
            correlation_id: The chain; None for all.
            limit: Most that are returned; None for all that are kept.
        """
        return self._desk.history.query(agent=agent, topic=topic, kind=kind, correlation_id=correlation_id, limit=limit)

    def delivery_log(self) -> list[DeliveryReport]:
        """Return the last reports, newest last (S1-020)."""
        return list(self._desk.history.reports)

    def audit_trail(self) -> list[AuditRecord]:
        """Return the last operations, allowed and refused, newest last (S2-054)."""
        return list(self._desk.audit)

    def metrics(self) -> BusMetrics:
        """Return a snapshot of the counters (S2-047)."""
        desk = self._desk
        lag: dict[str, int] = {}
        for consumer in desk.directory.all_consumers():
            lag[consumer.participant] = lag.get(consumer.participant, 0) + consumer.waiting
        return desk.metrics.snapshot(desk.environment.monotonic(), lag, len(desk.office))

    def pairs(self) -> dict[tuple[str, str], PairCounters]:
        """Return a copy of the counters of each `(sender, recipient)` (S1-058)."""
        return self._desk.metrics.pairs()

    # --- holding it -------------------------------------------------------------------------------

    def start(self) -> None:
        """Take messages again after `stop`; where none was stopped it changes nothing (S2-014).

        Raises:
            BusUnavailable: if the bus is not part of a running tree.
        """
        desk = self._desk
        if desk.state not in {"running", "stopped"}:
            desk.check_running()
        desk.stopped = desk.dropping = False

    async def stop(self, *, timeout: float = 2.0) -> int:
        """Take no more messages, and let functions handle what waits, for so long at most (S2-014).

        Returns:
            Messages that were still waiting then; they become dead letters when their turn comes. Actors that are
            participants go on with what is in their own mailboxes. Stopping again changes nothing.
        """
        desk = self._desk
        desk.stopped = True
        with trio.move_on_after(timeout):
            while self._pending():
                await desk.next_progress()
        await trio.lowlevel.checkpoint()
        left = self._pending()
        desk.dropping = desk.stopped
        return left

    def _pending(self) -> int:
        consumers = [one for one in self._desk.directory.all_consumers() if one.function is not None]
        return sum(one.waiting + sum(one.running) + sum(map(len, one.batches.values())) for one in consumers)


def bus_child(bus: Bus, *, restarts: int = 10, period: float = 5.0) -> ChildSpec:
    """Describe the tree that runs a bus, as a child of a supervisor or of `open_runtime`.

    ```
    <name>              one_for_one
    ├── clerk           looks after dead letters; stops last, so that it has those of the end, too
    └── participants    rest_for_one
        ├── workers     one actor for each worker of each function that is a handler
        └── keeper      watches registered actors, starts missing workers
    ```

    A worker that is killed is started again and goes on with the next message; a keeper or a clerk that is killed
    leaves the workers as they are. Participants that are functions stay registered through all of that.

    Args:
        bus: A bus that is in no other tree.
        restarts: Most restarts of workers, and of the two parts, within `period`.
        period: Length of that window, in seconds.

    Raises:
        InvalidChildSpec: if an option is out of its range.
    """
    return bus_tree(bus._desk, restarts=restarts, period=period)
