"""What every reference store must do, as tests to derive from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import Any, Final

import trio

from sapwood.actors import Environment
from sapwood.errors import InvalidOption, ReferenceInUse, ReferenceNotFound, ReferenceUnavailable
from sapwood.references import Reference, ReferenceStore, ReferenceType
from sapwood.testing._suite_kit import SteppedEnvironment, chunks_of, noise, refusal

PIECE: Final = 1024 * 1024
ABSENT: Final = "0" * 64
NO_REFERENCES: Final[tuple[Any, ...]] = ("", "x", ABSENT[:-1], ABSENT + "0", "A" * 64, None, 17, b"0" * 64)


class ReferenceStoreSuite:
    """Tests that any reference store must pass.

    Derive a test class and say how to open an empty store; run it with pytest-trio in trio mode:

        class TestMyStore(ReferenceStoreSuite):
            def opened(self, environment: Environment, **options: Any) -> AbstractAsyncContextManager[ReferenceStore]:
                return open_my_store(environment, **options)

    The options are those of `Retention`; without a `ttl`, what is stored must be kept for at least a minute. The store
    must take time from the environment.
    """

    def opened(self, environment: Environment, **options: Any) -> AbstractAsyncContextManager[ReferenceStore]:
        """Return a context manager that opens an empty store."""
        raise TypeError("write a method opened(environment, **options) that opens an empty store")

    # --- storing and resolving --------------------------------------------------------------------

    async def test_what_is_stored_is_resolved_byte_for_byte_by_its_hash(self) -> None:
        environment = SteppedEnvironment()
        async with self.opened(environment) as store:
            for data in (b"", b"\x00\xff\r\n", b"text" * 1000, noise(PIECE), noise(2 * PIECE + 1)):
                reference = await store.store(data, type=ReferenceType.DATASET, content_type="application/json")
                digest = sha256(data).hexdigest()
                assert reference == Reference(digest, "dataset", "application/json", len(data), environment.now)
                assert await store.resolve(reference) == data
                assert await store.resolve(reference.id) == data

    async def test_a_payload_that_compresses_takes_up_less_and_has_the_id_of_what_it_was(self) -> None:
        async with self.opened(SteppedEnvironment()) as store:
            data = b"the same again " * 20_000
            reference = await store.store(data)
            assert reference.id == sha256(data).hexdigest()
            info, statistics = await store.describe(reference), await store.stats()
            assert statistics.bytes == len(data)
            assert statistics.stored_bytes == info.stored_size
            assert info.stored_size < len(data) / 10 or statistics.compression == "unavailable"
            assert await store.resolve(reference) == data

    async def test_equal_bytes_are_kept_once_however_often_they_are_stored(self) -> None:
        environment = SteppedEnvironment()
        async with self.opened(environment) as store:
            data = noise(300_000)
            first = await store.store(data)
            environment.advance(1)
            again = await store.store(data, type="other")
            streamed = await store.store_stream(chunks_of(data, 1000), type="third")
            assert (first.id, first.created) == (again.id, again.created) == (streamed.id, streamed.created)
            assert (again.type, streamed.type) == ("other", "third")
            statistics = await store.stats()
            assert (statistics.references, statistics.bytes, statistics.stored_bytes) == (1, 300_000, 300_000)
            assert (statistics.stores, statistics.deduplicated) == (3, 2)

    async def test_what_was_never_stored_is_not_found_and_the_error_says_why_that_may_be(self) -> None:
        async with self.opened(SteppedEnvironment()) as store:
            with refusal(ReferenceNotFound) as refused:
                await store.resolve(ABSENT)
            assert refused[0].id == ABSENT
            for word in ("not found", ABSENT, "collected", "never stored", "another store"):
                assert word in str(refused[0])
            with refusal(ReferenceNotFound):
                await store.describe(ABSENT)
            with refusal(ReferenceNotFound):
                await store.acquire(ABSENT, "owner")
            with refusal(ReferenceNotFound):
                async with store.resolve_stream(ABSENT):
                    pass
            assert await store.delete(ABSENT) is False
            assert await store.release(ABSENT, "owner") is False
            assert await store.release_all("owner") == 0
            assert await store.list() == ()

    async def test_what_is_no_reference_or_option_is_refused_and_changes_nothing(self) -> None:
        async with self.opened(SteppedEnvironment()) as store:
            held = await store.store(b"held", owner="a")
            for wrong in NO_REFERENCES:
                for call in (store.resolve, store.delete, store.describe):
                    with refusal(InvalidOption):
                        await call(wrong)
                with refusal(InvalidOption):
                    await store.acquire(wrong, "a")
                with refusal(InvalidOption):
                    async with store.resolve_stream(wrong):
                        pass
            wrong_options: tuple[dict[str, Any], ...] = (
                *({"type": name} for name in ("", "With Blank", "1", "x" * 65, 7)),
                *({"content_type": content_type} for content_type in ("", "a\x00b", "\ud800", "x" * 513)),
                *({"ttl": ttl} for ttl in (0, -1, float("inf"), True, "1")),
                *({"owner": owner} for owner in ("", "\x00", 3)),
                *({"owner": "a", "lease_for": seconds} for seconds in (0, -1, float("nan"))),
                {"lease_for": 5},
                {"owner": "a", "ttl": 5},
            )
            for options in wrong_options:
                with refusal(InvalidOption):
                    await store.store(b"refused", **options)
            text: Any = "text"
            with refusal(InvalidOption):
                await store.store(text)
            with refusal(InvalidOption):
                await store.store_stream(text)
            assert await store.list() == (held,)

    async def test_bytes_given_to_a_store_are_not_shared_with_the_caller(self) -> None:
        async with self.opened(SteppedEnvironment()) as store:
            data: Any = bytearray(b"before")
            reference = await store.store(data)
            data[:] = b"after!"
            assert await store.resolve(reference) == b"before"

    async def test_all_references_are_listed_by_id_and_counted(self) -> None:
        async with self.opened(SteppedEnvironment()) as store:
            written: list[Reference] = []

            async def write(number: int) -> None:
                written.append(await store.store(f"payload {number}".encode()))

            async with trio.open_nursery() as nursery:
                for number in range(600):
                    nursery.start_soon(write, number)
            assert await store.list() == tuple(sorted(written, key=lambda reference: reference.id))
            statistics = await store.stats()
            assert (statistics.references, statistics.bytes) == (600, sum(one.size for one in written))

    async def test_a_deleted_reference_is_not_found_and_can_be_stored_again(self) -> None:
        async with self.opened(SteppedEnvironment()) as store:
            reference = await store.store(b"data")
            assert await store.delete(reference) is True
            with refusal(ReferenceNotFound):
                await store.resolve(reference)
            assert await store.delete(reference) is False
            assert (await store.stats()).bytes == 0
            again = await store.store(b"data")
            assert again.id == reference.id
            assert await store.resolve(reference) == b"data"

    # --- streams ----------------------------------------------------------------------------------

    async def test_a_stream_is_stored_and_read_in_chunks_of_any_size(self) -> None:
        async with self.opened(SteppedEnvironment()) as store:
            for size, step in ((0, 1), (1, 1), (5000, 7), (PIECE, 100_000), (3 * PIECE + 17, 2 * PIECE)):
                data = noise(size, seed=step)
                reference = await store.store_stream(chunks_of(data, step), content_type="text/plain")
                assert (reference.id, reference.size) == (sha256(data).hexdigest(), size)
                assert await store.resolve(reference) == data
                async with store.resolve_stream(reference) as reader:
                    chunks = [chunk async for chunk in reader]
                assert b"".join(chunks) == data
                assert all(0 < len(chunk) <= PIECE for chunk in chunks)
                assert reader.reference.id == reference.id

    async def test_a_stream_that_fails_or_is_cancelled_leaves_nothing_behind(self) -> None:
        async def broken() -> AsyncIterator[bytes]:
            await trio.lowlevel.checkpoint()
            yield noise(2 * PIECE)
            raise ValueError("the source broke")

        async def endless(scope: trio.CancelScope) -> AsyncIterator[bytes]:
            while True:
                yield noise(PIECE)
                scope.cancel()
                await trio.lowlevel.checkpoint()

        async def text() -> AsyncIterator[Any]:
            await trio.lowlevel.checkpoint()
            yield b"bytes"
            yield "text"

        environment = SteppedEnvironment()
        async with self.opened(environment) as store:
            with refusal(ValueError):
                await store.store_stream(broken())
            with refusal(InvalidOption):
                await store.store_stream(text())
            with trio.CancelScope() as scope:
                await store.store_stream(endless(scope))
            assert scope.cancelled_caught
            assert await store.list() == ()
            statistics = await store.stats()
            assert (statistics.references, statistics.stored_bytes, statistics.stores) == (0, 0, 0)
            environment.advance(1_000_000)
            assert (await store.collect()).uploads == 0, "it was left to a collection"

    async def test_a_reference_is_held_while_it_is_read_and_not_afterwards(self) -> None:
        environment = SteppedEnvironment()
        async with self.opened(environment) as store:
            data = noise(3 * PIECE)
            reference = await store.store(data, ttl=10)
            async with store.resolve_stream(reference) as reader:
                chunks = [await anext(reader)]
                environment.advance(500)
                await store.collect()
                with refusal(ReferenceInUse):
                    await store.delete(reference)
                chunks.append(await anext(reader))
                environment.advance(500)
                await store.collect()
                chunks += [chunk async for chunk in reader]
            assert b"".join(chunks) == data
            with refusal(ReferenceNotFound):
                await store.resolve(reference)
            assert (await store.collect()).references == 1

    # --- leases -----------------------------------------------------------------------------------

    async def test_the_count_of_a_reference_rises_and_falls_with_its_owners(self) -> None:
        async with self.opened(SteppedEnvironment()) as store:
            reference = await store.store(b"data", owner="a")
            for owner in ("b", "c", "b"):
                lease = await store.acquire(reference, owner)
                assert (lease.id, lease.owner, lease.expires) == (reference.id, owner, None)
            info = await store.describe(reference)
            assert [lease.owner for lease in info.leases] == ["a", "b", "c"]
            assert (await store.stats()).leases == 3
            assert [await store.release(reference, owner) for owner in ("b", "b", "a", "x")] == [
                *(True, False),
                *(True, False),
            ]
            assert [lease.owner for lease in (await store.describe(reference)).leases] == ["c"]
            assert (await store.stats()).leases == 1

    async def test_a_held_reference_is_neither_collected_nor_deleted_until_the_last_release(self) -> None:
        environment = SteppedEnvironment()
        async with self.opened(environment) as store:
            reference = await store.store(b"data", owner="a")
            await store.acquire(reference, "b")
            environment.advance(1_000_000)
            assert (await store.collect()).references == 0
            with refusal(ReferenceInUse) as refused:
                await store.delete(reference)
            assert refused[0].owners == ("a", "b")
            await store.release(reference, "a")
            assert (await store.collect()).references == 0
            assert await store.resolve(reference) == b"data"
            await store.release(reference, "b")
            with refusal(ReferenceNotFound):
                await store.resolve(reference)
            collected = await store.collect()
            assert (collected.references, collected.stored_bytes) == (1, 4)
            assert (await store.stats()).references == 0

    async def test_a_lease_ends_by_itself_unless_it_is_renewed(self) -> None:
        environment = SteppedEnvironment()
        async with self.opened(environment) as store:
            reference = await store.store(b"data", owner="a", lease_for=60)
            environment.advance(59)
            lease = await store.acquire(reference, "a", lease_for=60)
            assert lease.expires == environment.now + 60
            environment.advance(59)
            await store.collect()
            assert await store.resolve(reference) == b"data"
            environment.advance(1)
            with refusal(ReferenceNotFound):
                await store.acquire(reference, "b")
            collected = await store.collect()
            assert (collected.references, collected.leases) == (1, 1)
            assert await store.release(reference, "a") is False

    async def test_all_leases_of_an_owner_that_died_end_at_once(self) -> None:
        async with self.opened(SteppedEnvironment()) as store:
            written = [await store.store(f"{number}".encode(), owner="dead") for number in range(20)]
            await store.acquire(written[3], "alive")
            assert await store.release_all("dead") == 20
            assert await store.release_all("dead") == 0
            assert await store.list() == (written[3],)
            assert (await store.collect()).references == 19

    async def test_a_release_does_not_take_what_a_plain_store_of_the_same_bytes_keeps(self) -> None:
        environment = SteppedEnvironment()
        async with self.opened(environment) as store:
            reference = await store.store(b"data", ttl=100)
            await store.store(b"data", owner="a")
            await store.release(reference, "a")
            await store.collect()
            assert await store.resolve(reference) == b"data"
            environment.advance(100)
            with refusal(ReferenceNotFound):
                await store.resolve(reference)

    # --- time and space ---------------------------------------------------------------------------

    async def test_an_expired_reference_is_not_found_before_and_after_its_collection(self) -> None:
        environment = SteppedEnvironment()
        async with self.opened(environment, ttl=600.0) as store:
            reference = await store.store(b"data")
            assert (await store.describe(reference)).kept_until == environment.now + 600
            environment.advance(599)
            await store.collect()
            assert await store.resolve(reference) == b"data"
            environment.advance(1)
            for _ in range(2):
                with refusal(ReferenceNotFound):
                    await store.resolve(reference)
                assert await store.list() == ()
                await store.collect()
            statistics = await store.stats()
            assert (statistics.references, statistics.collected, statistics.collections) == (0, 1, 3)

    async def test_storing_again_keeps_it_longer_and_never_shorter(self) -> None:
        environment = SteppedEnvironment()
        async with self.opened(environment, ttl=100.0) as store:
            reference = await store.store(b"data")
            environment.advance(50)
            await store.store(b"data", ttl=10)
            environment.advance(40)
            await store.store(b"data")
            environment.advance(99)
            await store.collect()
            assert await store.resolve(reference) == b"data"
            await store.store(b"data", ttl=None)
            environment.advance(1_000_000)
            await store.collect()
            assert await store.resolve(reference) == b"data"
            assert (await store.describe(reference)).kept_until is None

    async def test_a_reference_lives_while_it_is_used_and_ends_when_it_is_idle(self) -> None:
        environment = SteppedEnvironment()
        async with self.opened(environment, ttl=None, max_idle=100.0) as store:
            used = [await store.store(b"resolved"), await store.store(b"acquired"), await store.store(b"stored")]
            idle = await store.store(b"idle")
            for _ in range(5):
                environment.advance(60)
                await store.resolve(used[0])
                await store.acquire(used[1], "a", lease_for=1)
                await store.store(b"stored")
                await store.collect()
            assert set(await store.list()) == set(used)
            with refusal(ReferenceNotFound):
                await store.resolve(idle)
            info = await store.describe(used[0])
            assert (info.accessed, info.resolves) == (environment.now, 5)
            environment.advance(100)
            assert await store.list() == ()
            assert (await store.collect()).references == 3

    async def test_every_use_counts_however_soon_after_the_last_one(self) -> None:
        environment = SteppedEnvironment()
        async with self.opened(environment, ttl=None, max_idle=100.0) as store:
            resolved, listed = await store.store(b"resolved"), await store.store(b"listed")
            environment.advance(20)
            for reference in (resolved, listed):
                await store.resolve(reference)
            environment.advance(90)
            assert set(await store.list()) == {resolved, listed}
            assert await store.resolve(resolved) == b"resolved"
            assert (await store.collect()).references == 0
            environment.advance(10)
            assert await store.list() == (resolved,)

    async def test_above_its_limits_it_evicts_what_was_used_least_recently_and_is_not_held(self) -> None:
        for limits in ({"max_references": 3}, {"max_bytes": 3000}):
            environment = SteppedEnvironment()
            async with self.opened(environment, **limits) as store:
                written: list[Reference] = []
                for number in range(3):
                    environment.advance(1)
                    written.append(await store.store(noise(1000, seed=number)))
                environment.advance(1)
                await store.resolve(written[0])
                await store.acquire(written[1], "a")
                environment.advance(1)
                newest = await store.store(noise(1000, seed=3))
                assert set(await store.list()) == {written[0], written[1], newest}
                for owner in (written[0], newest):
                    await store.acquire(owner, "a")
                environment.advance(1)
                last = await store.store(noise(1000, seed=4))
                assert await store.resolve(last) == noise(1000, seed=4)
                assert len(await store.list()) == 4
                assert (await store.collect()).evicted == 1
                assert set(await store.list()) == {written[0], written[1], newest}

    async def test_an_upload_whose_writer_stopped_is_dropped_by_a_collection(self) -> None:
        environment = SteppedEnvironment()
        ready, go_on = trio.Event(), trio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield noise(2 * PIECE)
            ready.set()
            await go_on.wait()
            yield noise(2 * PIECE, seed=1)

        failures: list[Exception] = []

        async def upload() -> None:
            with refusal(ReferenceUnavailable) as refused:
                await store.store_stream(slow())
            failures.extend(refused)

        async with self.opened(environment) as store, trio.open_nursery() as nursery:
            nursery.start_soon(upload)
            await ready.wait()
            environment.advance(3599)
            assert (await store.collect()).uploads == 0
            environment.advance(1)
            assert (await store.collect()).uploads == 1
            go_on.set()
        assert "dropped" in str(failures[0])

    # --- all at once, and closing -----------------------------------------------------------------

    async def test_calls_and_collections_at_once_lose_nothing_that_is_held_or_just_stored(self) -> None:
        environment = SteppedEnvironment()
        async with self.opened(environment, ttl=5.0) as store:
            done = trio.Event()

            async def work(number: int) -> None:
                for turn in range(15):
                    data = f"{(number + turn) % 4}".encode() * 2000
                    reference = await store.store(data, owner=f"w{number}")
                    assert await store.resolve(reference) == data
                    await store.acquire(reference, f"w{number}-again")
                    await store.release(reference, f"w{number}")
                    assert await store.resolve(reference) == data
                    try:
                        await store.delete(reference)
                    except ReferenceInUse:
                        pass
                    else:
                        raise AssertionError("a held reference was deleted")
                    await store.release(reference, f"w{number}-again")

            async def collect() -> None:
                while not done.is_set():
                    await store.collect()
                    environment.advance(1)

            async with trio.open_nursery() as collecting:
                collecting.start_soon(collect)
                async with trio.open_nursery() as working:
                    for number in range(8):
                        working.start_soon(work, number)
                done.set()
            environment.advance(5)
            await store.collect()
            statistics = await store.stats()
            assert (statistics.references, statistics.bytes, statistics.stored_bytes, statistics.leases) == (0, 0, 0, 0)

    async def test_a_closed_store_says_that_it_cannot_answer(self) -> None:
        async with self.opened(SteppedEnvironment()) as store:
            reference = await store.store(b"data")
            await store.close()
            await store.close()
            for call in (store.resolve, store.delete, store.describe):
                with refusal(ReferenceUnavailable):
                    await call(reference)
            for further in (store.list, store.stats, store.collect, store.open):
                with refusal(ReferenceUnavailable):
                    await further()
            with refusal(ReferenceUnavailable):
                await store.store(b"data")
            with refusal(ReferenceUnavailable):
                async with store.resolve_stream(reference):
                    pass
