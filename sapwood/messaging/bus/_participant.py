"""What a participant sends with: the bus, with the sender's name filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack, overload

from sapwood.actors import Priority, Request
from sapwood.errors import InvalidOption
from sapwood.messaging.bus._desk import HANDLED_NOW
from sapwood.messaging.bus._exchange import Accepted, Answer, Exchange, names_of
from sapwood.messaging.bus._reports import DeliveryReport, Operation
from sapwood.messaging.envelope import Envelope, Header, PriorityName, make_envelope

if TYPE_CHECKING:
    from sapwood.messaging.bus._bus import Bus

T = TypeVar("T")

TIMEOUT: Final = 5.0


class Fields(TypedDict, total=False):
    """Fields of the envelope that a sender may choose; see `Envelope`."""

    kind: str
    priority: PriorityName | Priority
    ttl: float | None
    deadline: int | None
    headers: Mapping[str, Header]
    follows: Envelope[Any] | None


class Participant:
    """Sends under one name; made by `Bus.register` and `Bus.client` (S2-019).

    A message that is sent while a function handles another one belongs to that one's chain: it has its correlation id
    and its trace context (S1-059). Elsewhere, and in actors, say `follows=` to carry a chain on.

    Whoever holds this object can speak under its name, so hand it, and not the bus, to code that you do not trust with
    other names.
    """

    def __init__(self, bus: Bus, exchange: Exchange, name: str) -> None:
        self._bus = bus
        self._exchange = exchange
        self.name = name

    def __repr__(self) -> str:
        return f"<Participant {self.name} of {self._bus.name}>"

    def make(
        self, payload: T, *, recipient: str | None = None, topic: str | None = None, **fields: Unpack[Fields]
    ) -> Envelope[T]:
        """Make an envelope from this participant, without sending it.

        Raises:
            InvalidEnvelope: naming the field that cannot be.
            BusUnavailable: before the bus was started for the first time.
        """
        given = dict(fields)
        follows: Any = given.pop("follows", None) or HANDLED_NOW.get()
        environment = self._exchange.desk.environment
        options: dict[str, Any] = {"sender": self.name, "recipient": recipient, "topic": topic, **given}
        if follows is None:
            return make_envelope(environment, payload, **options)
        followed: Envelope[T] = follows.follow(environment, payload, **options)
        return followed

    async def send(
        self,
        recipient: str,
        payload: object,
        *,
        wait: bool = False,
        timeout: float | None = TIMEOUT,
        **fields: Unpack[Fields],
    ) -> DeliveryReport:
        """Send to one participant; see `Bus.send`."""
        return await self._deliver(self.make(payload, recipient=recipient, **fields), wait=wait, timeout=timeout)

    def send_nowait(self, recipient: str, payload: object, **fields: Unpack[Fields]) -> DeliveryReport:
        """Send to one participant without waiting for anything; see `Bus.send_nowait`."""
        envelope = self.make(payload, recipient=recipient, **fields)
        return self._exchange.post(self._accept(envelope))

    async def publish(
        self,
        topic: str,
        payload: object,
        *,
        wait: bool = False,
        timeout: float | None = TIMEOUT,
        **fields: Unpack[Fields],
    ) -> DeliveryReport:
        """Publish on a topic, to everybody who has subscribed to it but this participant; see `Bus.send` (S2-010)."""
        fields["headers"] = {**fields.get("headers", {}), "topic": topic}
        return await self._deliver(self.make(payload, topic=topic, **fields), wait=wait, timeout=timeout)

    async def broadcast(
        self, payload: object, *, wait: bool = False, timeout: float | None = TIMEOUT, **fields: Unpack[Fields]
    ) -> DeliveryReport:
        """Send to every participant but this one; see `Bus.send` (S2-011)."""
        fields["headers"] = {**fields.get("headers", {}), "broadcast": True}
        return await self._deliver(self.make(payload, **fields), wait=wait, timeout=timeout)

    async def multicast(
        self,
        recipients: Sequence[str],
        payload: object,
        *,
        wait: bool = False,
        timeout: float | None = TIMEOUT,
        **fields: Unpack[Fields],
    ) -> DeliveryReport:
        """Send to chosen participants; see `Bus.multicast` (S2-012)."""
        envelope = self.make(payload, **fields)
        accepted = self._accept(envelope, "multicast", names_of(envelope, recipients))
        return await self._exchange.send(accepted, wait=wait, timeout=timeout)

    async def route(
        self, payload: object, *, wait: bool = False, timeout: float | None = TIMEOUT, **fields: Unpack[Fields]
    ) -> DeliveryReport:
        """Send to the participants of the first route that matches; see `Bus.route` (S2-013)."""
        accepted = self._accept(self.make(payload, **fields), "route")
        return await self._exchange.send(accepted, wait=wait, timeout=timeout)

    async def send_many(
        self, envelopes: Iterable[Envelope[Any]], *, wait: bool = False, timeout: float | None = TIMEOUT
    ) -> list[DeliveryReport]:
        """Send several messages that `make` made; see `Bus.send_many` (S1-019).

        Raises:
            InvalidOption: if one of them has another sender; then none was sent.
        """
        given = list(envelopes)
        for envelope in given:
            if envelope.sender != self.name:
                raise InvalidOption(
                    f"send_many: expected envelopes from {self.name!r}; got one from {envelope.sender!r}"
                )
        return await self._exchange.send_many(given, trusted=True, wait=wait, timeout=timeout)

    @overload
    async def request(
        self, recipient: str, payload: Request[T], *, timeout: float | None = TIMEOUT, **fields: Unpack[Fields]
    ) -> T: ...
    @overload
    async def request(
        self, recipient: str, payload: object, *, timeout: float | None = TIMEOUT, **fields: Unpack[Fields]
    ) -> Any: ...
    async def request(
        self, recipient: str, payload: object, *, timeout: float | None = TIMEOUT, **fields: Unpack[Fields]
    ) -> Any:
        """Ask one participant and return its answer; see `Bus.request`.

        A payload of class `Request[T]` makes the answer a `T` to type checkers.
        """
        fields.setdefault("kind", "request")
        envelope = self.make(payload, recipient=recipient, **fields)
        answer = await self._exchange.ask(self._accept(envelope, "request"), timeout)
        return answer.payload.value if isinstance(answer.payload, Answer) else answer.payload

    async def reply(
        self,
        to: Envelope[Any],
        payload: object,
        *,
        wait: bool = False,
        timeout: float | None = TIMEOUT,
        headers: Mapping[str, Header] | None = None,
    ) -> DeliveryReport:
        """Answer a message with one of its own, which has `reply_to` and stays in its chain (S2-020, S2-023).

        For conversations between participants; who called `request` gets what the handler returns.
        """
        answer = to.answer(self._exchange.desk.environment, payload, sender=self.name, headers=headers)
        return await self._deliver(answer, wait=wait, timeout=timeout)

    def _accept(
        self, envelope: Envelope[Any], operation: Operation | None = None, recipients: tuple[str, ...] = ()
    ) -> Accepted:
        return self._exchange.accept(self._exchange.check(envelope, operation, recipients, trusted=True))

    async def _deliver(self, envelope: Envelope[Any], *, wait: bool, timeout: float | None) -> DeliveryReport:
        return await self._exchange.send(self._accept(envelope), wait=wait, timeout=timeout)

    def subscribe(self, pattern: str) -> bool:
        """Get what is published on matching topics; see `Bus.subscribe`."""
        return self._bus.subscribe(self.name, pattern)

    def unsubscribe(self, pattern: str) -> bool:
        """Take a subscription back; see `Bus.unsubscribe`."""
        return self._bus.unsubscribe(self.name, pattern)

    def unregister(self) -> bool:
        """Leave the bus; see `Bus.unregister`."""
        return self._bus.unregister(self.name)
