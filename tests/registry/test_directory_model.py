"""Random histories: a directory against a dict of lists."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.actors import ActorSystem, Ref
from sapwood.errors import AlreadyRegistered, NotRegistered
from sapwood.registry import Directory, DuplicateDirectory, Key, UniqueDirectory
from sapwood.testing import simulate
from tests.registry.directory_kit import Member, do, replace_owner, running

ACTORS = 4
KEYS: tuple[Key, ...] = (("k", 1), ("k", "1"), ("k", 2))

actor = st.integers(0, ACTORS - 1)
key = st.sampled_from(KEYS)
value = st.integers(0, 2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("register"), actor, key, value),
        st.tuples(st.just("register"), actor, key, value),
        st.tuples(st.just("unregister"), actor, key),
        st.tuples(st.just("unregister_match"), actor, key, value),
        st.tuples(st.just("update"), actor, key),
        st.tuples(st.just("end"), actor),
        st.tuples(st.sampled_from(["deafen", "wake"])),
        st.tuples(st.just("lose")),
    ),
    max_size=30,
)


class Model:
    """`{key: [(actor, value)]}`, and the rules of each operation in a line or two."""

    def __init__(self, *, unique: bool) -> None:
        self.unique = unique
        self.entries: defaultdict[Key, list[tuple[int, int]]] = defaultdict(list)

    def register(self, who: int, at: Key, what: int) -> str | None:
        if self.unique and self.entries[at]:
            return "AlreadyRegistered"
        self.entries[at].append((who, what))
        return None

    def unregister(self, who: int, at: Key, only: int | None = None) -> int:
        before = self.entries[at]
        self.entries[at] = [entry for entry in before if entry[0] != who or only not in (None, entry[1])]
        return len(before) - len(self.entries[at])

    def update(self, who: int, at: Key) -> tuple[int, int] | str:
        for index, (holder, old) in enumerate(self.entries[at]):
            if holder == who:
                self.entries[at][index] = (who, old + 10)
                return old + 10, old
        return "NotRegistered"

    def end(self, who: int) -> None:
        for at in self.entries:
            self.unregister(who, at)

    def holders(self) -> set[int]:
        return {who for entries in self.entries.values() for who, _ in entries}


class Comparison:
    """One history, lived by both."""

    def __init__(self, directory: Directory[int], system: ActorSystem) -> None:
        self.directory = directory
        self.system = system
        self.model = Model(unique=isinstance(directory, UniqueDirectory))
        self.refs: list[Ref] = []

    async def start(self) -> None:
        self.refs = [await self.system.spawn(Member) for _ in range(ACTORS)]

    async def step(self, name: str, *args: Any) -> None:
        await getattr(self, name)(*args)
        self.check()

    async def register(self, who: int, at: Key, what: int) -> None:
        try:
            await do(self.refs[who], self.directory.register, at, what)
            failed = None
        except AlreadyRegistered as error:
            failed = type(error).__name__
        assert failed == self.model.register(who, at, what)

    async def unregister(self, who: int, at: Key) -> None:
        assert await do(self.refs[who], self.directory.unregister, at) == self.model.unregister(who, at)

    async def unregister_match(self, who: int, at: Key, what: int) -> None:
        removed = await do(self.refs[who], self.directory.unregister_match, at, lambda value: value == what)
        assert removed == self.model.unregister(who, at, what)

    async def update(self, who: int, at: Key) -> None:
        if isinstance(self.directory, UniqueDirectory):
            got: tuple[int, int] | str
            try:
                got = await do(self.refs[who], self.directory.update_value, at, lambda value: value + 10)
            except NotRegistered as error:
                got = type(error).__name__
            assert got == self.model.update(who, at)

    async def end(self, who: int) -> None:
        self.refs[who].kill()
        await self.refs[who].wait_stopped()
        self.model.end(who)
        self.check()
        self.refs[who] = await self.system.spawn(Member)

    async def deafen(self) -> None:
        await self.directory.ref.suspend()

    async def wake(self) -> None:
        await self.directory.ref.resume()

    async def lose(self) -> None:
        await replace_owner(self.directory)
        assert {who for who, ref in enumerate(self.refs) if not ref.alive} == self.model.holders()
        self.model.entries.clear()
        self.refs = [ref if ref.alive else await self.system.spawn(Member) for ref in self.refs]

    def check(self) -> None:
        listed = Counter((one.key, self.refs.index(one.ref), one.value) for one in self.directory.select(bool))
        expected = Counter((at, who, what) for at, entries in self.model.entries.items() for who, what in entries)
        assert listed == expected
        assert self.directory.count() == expected.total()
        for at in KEYS:
            found = Counter((self.refs.index(one.ref), one.value) for one in self.directory.lookup(at))
            assert found == Counter(self.model.entries[at])
            sizes: list[int] = []
            assert self.directory.dispatch(at, lambda found, sizes=sizes: sizes.append(len(found))) == found.total()  # type: ignore[misc]  # mypy finds no type for such a lambda
            assert sizes == ([found.total()] if found else [])
            if isinstance(self.directory, UniqueDirectory):
                holders = [self.refs[who] for who, _ in self.model.entries[at]]
                assert self.directory.whereis(at) is (holders[0] if holders else None)
        for who, ref in enumerate(self.refs):
            own = Counter(at for at, holder, _ in expected.elements() if holder == who)
            assert Counter(self.directory.keys(ref)) == own
            for at in KEYS:
                values = Counter(what for there, holder, what in expected.elements() if (there, holder) == (at, who))
                assert Counter(self.directory.values(at, ref)) == values


@pytest.mark.row("K04", "K05", "K07", "K08", "K11", "K12", "K13", "K14", "K15", "K18")
@pytest.mark.parametrize("kind", [UniqueDirectory, DuplicateDirectory])
@settings(max_examples=150)
@given(history=steps, seed=st.integers(0, 2**16))
def test_a_directory_is_a_dict_of_lists_in_every_history(
    kind: type[Directory[int]], history: list[tuple[Any, ...]], seed: int
) -> None:
    async def live() -> None:
        directory = kind("rooms")
        async with running(directory) as system:
            comparison = Comparison(directory, system)
            await comparison.start()
            for step in history:
                await comparison.step(*step)
            await directory.ref.resume()
            owner = directory._owner
            assert owner is not None
            await directory.ref.get_state()  # behind all that it was told
            assert set(owner._monitors) == set(owner.table.holders)
            assert set(owner.table.holders) == {comparison.refs[who] for who in comparison.model.holders()}

    simulate(seed, live)
