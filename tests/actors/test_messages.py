"""Declarations: messages, handlers and what is refused when a class is made."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from sapwood.actors import Actor, ActorSystem, Priority, Ref, Request, class_of, handle, message, record, wire_of
from sapwood.errors import DuplicateName, InvalidMessage
from tests.actors.kit import Call, Note, Probe, log_of


@message("tests.actors.messages.base")
class Base:
    value: int


@message("tests.actors.messages.derived", priority=Priority.HIGH)
class Derived(Base):
    more: int = 0


@message("tests.actors.messages.any_request")
class Question(Request[str]):
    pass


class TestMessages:
    def test_a_message_is_frozen_compares_by_value_and_has_a_wire_name(self) -> None:
        one = Base(1)
        assert one == Base(1)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            one.value = 2  # type: ignore[misc]  # the mistake under test
        assert not hasattr(one, "__dict__")
        wire = wire_of(Base)
        assert wire is not None
        assert (wire.name, wire.version) == ("tests.actors.messages.base", 1)
        assert class_of("tests.actors.messages.base") is Base

    def test_a_wire_name_belongs_to_one_class(self) -> None:
        with pytest.raises(DuplicateName, match=r"tests\.actors\.messages\.base"):

            @message("tests.actors.messages.base")
            class Other:
                pass

    @pytest.mark.parametrize("bad", [1, "high", None, 2.0])
    def test_a_default_priority_must_be_one(self, bad: Any) -> None:
        with pytest.raises(InvalidMessage, match="expected priority="):
            message("tests.actors.messages.bad", priority=bad)

    def test_a_version_needs_an_upcaster_for_every_older_one(self) -> None:
        with pytest.raises(InvalidMessage, match=r"expected upcasters for \[1, 2\]; got \[1\]"):
            record("tests.actors.messages.versioned", version=3, upcasters={1: dict})

    def test_a_wire_name_is_not_inherited(self) -> None:
        class Undeclared(Base):
            pass

        assert wire_of(Undeclared) is None

    def test_a_ref_has_no_public_constructor(self) -> None:
        with pytest.raises(InvalidMessage, match="made by the runtime"):
            Ref()


class TestHandlers:
    def test_a_handler_without_an_annotation_is_refused_with_what_to_write(self) -> None:
        def declare() -> type[Actor]:
            class Wrong(Actor):
                @handle
                def take(self, message) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001  # the mistake
                    pass

            return Wrong

        with pytest.raises(InvalidMessage, match="expected an annotation on 'message'") as caught:
            declare()
        assert "@handle\n            def take(self, message: Deposit) -> None" in str(caught.value)

    def test_a_handler_of_something_that_is_no_message_is_refused(self) -> None:
        def declare() -> type[Actor]:
            class Wrong(Actor):
                @handle
                def take(self, message: int) -> None:
                    pass

            return Wrong

        def declare_union() -> type[Actor]:
            class Wrong(Actor):
                @handle
                def take(self, message: Base | list[int]) -> None:
                    pass

            return Wrong

        with pytest.raises(InvalidMessage, match="expected a class made with @message; got <class 'int'>"):
            declare()
        with pytest.raises(InvalidMessage, match="expected a class made with @message"):
            declare_union()
        with pytest.raises(InvalidMessage, match="got <class 'str'>"):
            handle(str)(lambda self, message: None)

    def test_a_handler_with_other_parameters_is_refused(self) -> None:
        def declare() -> type[Actor]:
            class Wrong(Actor):
                @handle
                def take(self, message: Base, more: int) -> None:
                    pass

            return Wrong

        with pytest.raises(InvalidMessage, match=r"expected the parameters \(self, message: SomeMessage\); got 3"):
            declare()

    def test_an_annotation_that_names_nothing_is_refused(self) -> None:
        def declare() -> type[Actor]:
            class Wrong(Actor):
                @handle
                def take(self, message: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821  # the mistake
                    pass

            return Wrong

        with pytest.raises(InvalidMessage, match="cannot resolve the annotation"):
            declare()

    def test_two_handlers_of_one_message_in_one_class_are_refused(self) -> None:
        def declare() -> type[Actor]:
            class Wrong(Actor):
                @handle
                def one(self, message: Base) -> None:
                    pass

                @handle
                def two(self, message: Base) -> None:
                    pass

            return Wrong

        with pytest.raises(DuplicateName, match="handler for 'Base'"):
            declare()

    async def test_a_message_goes_to_the_handler_of_its_nearest_declared_base(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class ByBase(Probe):
            @handle
            def base(self, message: Base) -> None:
                self.log.append(("base", message.value))

        class ByBoth(ByBase):
            @handle
            async def derived(self, message: Derived) -> None:
                self.log.append(("derived", message.more))

        by_base, by_both = await system.spawn(ByBase), await system.spawn(ByBoth)
        for ref in (by_base, by_both):
            ref.tell(Base(1))
            ref.tell(Derived(2, 3), priority=Priority.NORMAL)
            ref.tell(Derived(2, 3), priority=Priority.NORMAL)
        assert await log_of(by_base) == [("base", 1), ("base", 2), ("base", 2)]
        assert await log_of(by_both) == [("base", 1), ("derived", 3), ("derived", 3)]

    async def test_a_handler_of_all_requests_takes_those_without_their_own(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Polite(Probe):
            @handle(Request)
            def other(self, message: Request[Any]) -> Any:
                return f"no answer to {type(message).__name__}"

        ref = await system.spawn(Polite)
        for _ in range(2):
            assert await ref.ask(Question()) == "no answer to Question"
        assert await ref.ask(Call(lambda actor: 1)) == 1

    async def test_a_union_and_named_types_make_one_handler_take_several(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Taking(Actor):
            def __init__(self) -> None:
                self.log: list[str] = []

            @handle
            def union(self, message: Base | Note) -> None:
                self.log.append(f"union {type(message).__name__}")

            @handle(Derived, Question)
            def named(self, message: Any) -> None:
                self.log.append(f"named {type(message).__name__}")

        ref = await system.spawn(Taking)
        for entry in (Base(1), Note(1), Question()):
            ref.tell(entry)
        ref.tell(Derived(1), priority=Priority.LOW)
        assert await log_of(ref) == ["union Base", "union Note", "named Question", "named Derived"]
