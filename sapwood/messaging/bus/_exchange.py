"""The exchange: from a message that somebody wants to send to the report of what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import attrs
import trio

from sapwood.actors import record, wire_of
from sapwood.errors import InvalidOption, Undeliverable, UnknownParticipant
from sapwood.messaging.bus._dead_letters import DeadLetter
from sapwood.messaging.bus._delivery import ask, ask_all, post_all, post_all_nowait
from sapwood.messaging.bus._desk import Desk
from sapwood.messaging.bus._directory import Consumer
from sapwood.messaging.bus._durable_sending import put_again
from sapwood.messaging.bus._gate import check_content, check_message
from sapwood.messaging.bus._reports import Delivery, DeliveryReport, Operation, status_of
from sapwood.messaging.bus._routes import chain_filters, recipients_of
from sapwood.messaging.envelope import Envelope, check_size


@record("messaging.answer")
class Answer:
    """The answer to a request whose handler returned something else than a record."""

    value: Any


@attrs.frozen(eq=False)
class Checked:
    """A message that passed all checks, and whom it is for; `dropped_by` names the filter that dropped it."""

    envelope: Envelope[Any]
    operation: Operation
    to: str
    names: tuple[str, ...]
    size: int
    dropped_by: str = ""


@attrs.frozen(eq=False)
class Accepted:
    """A message that was accepted, those who are there to get it, and the failures for those who are not."""

    envelope: Envelope[Any]
    names: tuple[str, ...]
    begun: float
    failures: tuple[Delivery, ...] = ()


class Exchange:
    """Accepts messages and delivers them; what a bus and its participants send with.

    Args:
        desk: The desk of the bus.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def check(
        self,
        envelope: Envelope[Any],
        operation: Operation | None = None,
        recipients: tuple[str, ...] = (),
        *,
        trusted: bool = False,
    ) -> Checked:
        """Check a message, filter it and find its recipients; nothing is noted yet but a refusal.

        Raises:
            BusUnavailable and so on: see `Bus.send`.
        """
        if not isinstance(envelope, Envelope):
            raise InvalidOption(f"bus: expected an Envelope, such as make_envelope(...) returns; got {envelope!r}")
        desk = self.desk
        operation = operation or operation_of(envelope)
        to = ", ".join(recipients) or envelope.recipient or envelope.topic or "*"
        size = check_message(desk, envelope, operation, to, trusted=trusted)
        passed, dropped_by = chain_filters(desk.options.filters, envelope)
        if passed is None:
            return Checked(envelope, operation, to, (), size, dropped_by)
        if passed is not envelope:
            size = check_content(desk, passed, operation)
        return Checked(passed, operation, to, self._names(passed, operation, recipients), size)

    def accept(self, checked: Checked) -> Accepted:
        """Note a message that passed all checks; what comes to nobody is a dead letter."""
        desk, envelope = self.desk, checked.envelope
        begun = desk.environment.monotonic()
        desk.note(envelope.sender, checked.operation, checked.to, detail=envelope.message_id)
        desk.accepted(envelope, checked.names, checked.size, checked.to)
        known = tuple(name for name in checked.names if name in desk.directory)
        failures = [self._unknown(envelope, name) for name in checked.names if name not in desk.directory]
        if checked.dropped_by:
            target, detail = envelope.recipient or "", f"the filter {checked.dropped_by!r} dropped it"
            desk.dead_letter(envelope, target, "filtered", detail)
            failures.append(Delivery(target, 0, "failed", detail, "filtered"))
        elif checked.operation == "route" and not checked.names:
            failures.append(self._unrouted(envelope))
        return Accepted(envelope, known, begun, tuple(failures))

    async def send_many(
        self, envelopes: Iterable[Envelope[Any]], *, trusted: bool, wait: bool, timeout: float | None
    ) -> list[DeliveryReport]:
        """Check all, then send the more urgent ones first; the reports come in the order given."""
        checked = list(enumerate([self.check(envelope, trusted=trusted) for envelope in envelopes]))
        reports: dict[int, DeliveryReport] = {}
        for index, one in sorted(checked, key=lambda pair: pair[1].envelope.lane):
            reports[index] = await self.send(self.accept(one), wait=wait, timeout=timeout)
        await trio.lowlevel.checkpoint()
        return [reports[index] for index, _ in checked]

    def _names(self, envelope: Envelope[Any], operation: Operation, recipients: tuple[str, ...]) -> tuple[str, ...]:
        desk = self.desk
        match operation:
            case "multicast":
                return recipients
            case "route":
                return recipients_of(desk.options.routes, envelope)
            case "publish":
                assert envelope.topic is not None
                found = desk.subscriptions.subscribers(envelope.topic)
            case "broadcast":
                found = list(desk.directory)
            case _:
                return (envelope.recipient,) if envelope.recipient is not None else ()
        return tuple(name for name in found if name != envelope.sender)

    def _unknown(self, envelope: Envelope[Any], name: str) -> Delivery:
        detail = f"No handler registered for agent {name!r}"
        self.desk.dead_letter(envelope, name, "unknown_recipient", detail)
        return Delivery(name, 0, "failed", detail, "unknown_recipient")

    def _unrouted(self, envelope: Envelope[Any]) -> Delivery:
        detail = "no route of the bus matches it"
        self.desk.dead_letter(envelope, "", "no_route", detail)
        return Delivery("", 0, "failed", detail, "no_route")

    def _consumers(self, accepted: Accepted) -> list[Consumer]:
        return [consumer for name in accepted.names for consumer in self.desk.directory.consumers(name)]

    async def send(self, accepted: Accepted, *, wait: bool, timeout: float | None) -> DeliveryReport:
        """Put a message into all mailboxes, or have it handled everywhere."""
        consumers = self._consumers(accepted)
        if not consumers:
            await trio.lowlevel.checkpoint()
            return self._report(accepted, [])
        if wait:
            answers = await ask_all(self.desk, accepted.envelope, consumers, timeout)
            return self._report(accepted, [answer.delivery for answer in answers])
        return self._report(accepted, await post_all(self.desk, accepted.envelope, consumers, timeout))

    def post(self, accepted: Accepted) -> DeliveryReport:
        """Put a message into those mailboxes that have room."""
        return self._report(accepted, post_all_nowait(self.desk, accepted.envelope, self._consumers(accepted)))

    def _report(self, accepted: Accepted, found: list[Delivery]) -> DeliveryReport:
        deliveries = (*accepted.failures, *found)
        report = DeliveryReport(
            message_id=accepted.envelope.message_id,
            correlation_id=accepted.envelope.correlation_id,
            status=status_of(deliveries),
            targets_contacted=len(accepted.names),
            errors=tuple(delivery.error for delivery in deliveries if delivery.error is not None),
            latency_ms=round((self.desk.environment.monotonic() - accepted.begun) * 1000, 3),
            deliveries=deliveries,
        )
        self.desk.history.reports.append(report)
        return report

    def again(self, letter: DeadLetter) -> Accepted:
        """Accept a dead letter once more, for the participant that did not handle it."""
        desk = self.desk
        begun = desk.environment.monotonic()
        operation = "route" if letter.reason == "no_route" else operation_of(letter.original)
        names = (letter.target,) if letter.target else self._names(letter.original, operation, ())
        desk.metrics.pair(letter.original.sender, letter.target).retried += 1
        failures = tuple(self._unknown(letter.original, name) for name in names if name not in desk.directory)
        if operation == "route" and not names:
            failures = (self._unrouted(letter.original),)
        known = tuple(name for name in names if name in desk.directory)
        return Accepted(letter.original, known, begun, failures)

    async def bring_back(
        self, letter: DeadLetter, consumer: Consumer, seq: int, *, timeout: float | None
    ) -> DeliveryReport:
        """Bring a dead letter back into the queue that keeps it, for the handler that did not handle it."""
        desk, begun = self.desk, self.desk.environment.monotonic()
        del consumer.dead[letter.id]
        try:
            answered = await put_again(desk, letter.original, consumer, seq, timeout)
        except BaseException:
            # What the queue still keeps is shown again, under its id, when its host looks.
            consumer.look()
            raise
        desk.metrics.pair(letter.original.sender, letter.target).retried += 1
        return self._report(Accepted(letter.original, (letter.target,), begun), [answered.delivery])

    async def ask(self, accepted: Accepted, timeout: float | None) -> Envelope[Any]:
        """Have a request handled by its recipient; return the answer, see `Bus.request`."""
        envelope = accepted.envelope
        consumers = self.desk.directory.consumers(envelope.recipient or "")
        if accepted.failures or not consumers:
            await trio.lowlevel.checkpoint()
            raise self._unanswered(accepted)
        answered = await ask(self.desk, envelope, consumers[0], timeout)
        if answered.error is not None:
            raise answered.error
        return self._answer(envelope, answered.value)

    def _answer(self, request: Envelope[Any], value: Any) -> Envelope[Any]:
        desk = self.desk
        if isinstance(value, Envelope):
            return cast("Envelope[Any]", value)
        kind = cast("type[Any]", type(value))
        payload = value if wire_of(kind) is not None else Answer(value)
        answer = request.answer(desk.environment, payload)
        desk.answered(answer, check_size(answer, desk.options.max_bytes))
        return answer

    def _unanswered(self, accepted: Accepted) -> Exception:
        failure = accepted.failures[0]
        if failure.reason == "unknown_recipient":
            return UnknownParticipant(self.desk.options.name, failure.recipient, list(self.desk.directory))
        return Undeliverable(accepted.envelope.message_id, failure.reason or "", failure.error or "")


def operation_of(envelope: Envelope[Any]) -> Operation:
    """Return what sending an envelope amounts to."""
    if envelope.recipient is not None:
        return "send"
    return "publish" if envelope.topic is not None else "broadcast"


def names_of(envelope: Envelope[Any], recipients: Sequence[str]) -> tuple[str, ...]:
    """Return the recipients of a multicast, each once.

    Raises:
        InvalidOption: if there are none, or the message has a recipient of its own.
    """
    names = tuple(dict.fromkeys(recipients))
    if isinstance(recipients, str) or not names or envelope.recipient is not None:
        raise InvalidOption(
            f"multicast: expected a list of names, and an envelope with recipient=None; got {recipients!r}"
        )
    return names
