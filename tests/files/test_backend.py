"""What every backend must do; each test runs on each of them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
import trio

from sapwood.actors import RealEnvironment
from sapwood.errors import FileExists, FileMissing, InvalidOption, InvalidPath, VersionConflict
from sapwood.files import BufferedBackend, FileBackend, FileEntry, FilePath, normalise

A, B, NESTED = normalise("a.txt"), normalise("b.txt"), normalise("x/y/z.txt")


async def entries(backend: FileBackend) -> tuple[FileEntry, ...]:
    listing = await backend.list()
    assert listing.skipped == ()
    return listing.entries


async def test_an_empty_backend_lists_nothing_and_misses_every_file(backend: FileBackend) -> None:
    assert await entries(backend) == ()
    for call in (backend.read, backend.stat, backend.delete):
        with pytest.raises(FileMissing, match="no such file"):
            await call(A)


async def test_a_written_file_is_read_back_byte_for_byte_with_its_entry(
    backend: FileBackend, environment: RealEnvironment
) -> None:
    before = environment.wall()
    for path, data in [(A, b""), (B, bytes(range(256)) * 100), (NESTED, b" \r\n\t\n")]:
        entry = await backend.write(path, data)
        assert (entry.path, entry.size, entry.state) == (path, len(data), "saved")
        assert entry.version == 1 or isinstance(backend, BufferedBackend)
        assert entry.sha256 == sha256(data).hexdigest()
        assert before - 0.001 <= entry.modified <= environment.wall()
        read = await backend.read(path)
        assert (read.entry, read.data) == (entry, data)
        assert await backend.stat(path) == entry


async def test_a_listing_holds_every_file_in_the_order_of_paths(backend: FileBackend) -> None:
    names = ["z", "a/b", "a-b", "a/a", "B", "\xe9", "日本/語", "a b"]
    written = [await backend.write(normalise(name), name.encode()) for name in names]

    assert await entries(backend) == tuple(sorted(written, key=lambda entry: entry.path))


async def test_the_version_rises_with_every_write_also_of_the_same_content(backend: FileBackend) -> None:
    assert [(await backend.write(A, b"same")).version for _ in range(3)] == [1, 2, 3]
    assert (await backend.write(B, b"other")).version == 1 or isinstance(backend, BufferedBackend)
    assert (await backend.stat(A)).version == 3


async def test_a_version_never_comes_back_after_a_deletion(backend: FileBackend) -> None:
    for _ in range(3):
        await backend.write(A, b"first life")
    await backend.write(B, b"deleted later, at a lower version")
    await backend.delete(A)
    await backend.delete(B)

    again = await backend.write(A, b"second life")
    assert again.version > 3
    with pytest.raises(VersionConflict) as caught:
        await backend.write(A, b"from the first life", expected_version=3)
    assert (caught.value.expected, caught.value.found) == (3, again.version)


@pytest.mark.parametrize("expected", [1, 2, 4, 99])
async def test_a_write_that_expects_another_version_changes_nothing(backend: FileBackend, expected: int) -> None:
    for text in (b"one", b"two", b"three"):
        await backend.write(A, text)
    before = await entries(backend)

    with pytest.raises(VersionConflict, match=f"version 3, but version {expected} was expected"):
        await backend.write(A, b"lost", expected_version=expected)
    with pytest.raises(VersionConflict):
        await backend.delete(A, expected_version=expected)
    assert await entries(backend) == before
    assert (await backend.read(A)).data == b"three"


async def test_a_write_that_expects_the_current_version_succeeds(backend: FileBackend) -> None:
    first = await backend.write(A, b"one", expected_version=0)
    second = await backend.write(A, b"two", expected_version=first.version)
    await backend.delete(A, expected_version=second.version)
    assert await entries(backend) == ()


async def test_version_zero_creates_and_refuses_what_exists(backend: FileBackend) -> None:
    await backend.write(A, b"one", expected_version=0)
    with pytest.raises(FileExists, match="exists already, at version 1"):
        await backend.write(A, b"two", expected_version=0)
    assert (await backend.read(A)).data == b"one"


@pytest.mark.parametrize("path", [A, NESTED])
async def test_a_version_expected_of_an_absent_file_is_a_conflict(backend: FileBackend, path: str) -> None:
    with pytest.raises(VersionConflict, match="does not exist, but version 1"):
        await backend.write(normalise(path), b"x", expected_version=1)
    with pytest.raises(VersionConflict, match="does not exist"):
        await backend.delete(normalise(path), expected_version=1)
    assert await entries(backend) == ()


async def test_a_deleted_file_is_gone_and_makes_room_for_a_file_in_place_of_its_directory(backend: FileBackend) -> None:
    await backend.write(NESTED, b"deep")
    await backend.delete(NESTED)
    with pytest.raises(FileMissing):
        await backend.read(NESTED)

    await backend.write(normalise("x"), b"now a file")
    assert [entry.path for entry in await entries(backend)] == ["x"]


@pytest.mark.row("BR-37")
async def test_a_second_file_that_differs_only_by_case_is_refused(backend: FileBackend) -> None:
    await backend.write(A, b"lower")
    with pytest.raises(FileExists, match="only by case"):
        await backend.write(normalise("A.TXT"), b"upper")
    with pytest.raises(FileMissing):
        await backend.read(normalise("A.TXT"))
    assert (await backend.read(A)).data == b"lower"


async def test_data_given_to_a_write_is_not_shared_with_the_caller(backend: FileBackend) -> None:
    data = bytearray(b"before")
    await backend.write(A, bytes(data))
    data[:] = b"after!"
    assert (await backend.read(A)).data == b"before"


async def test_concurrent_writes_with_one_expected_version_let_exactly_one_through(backend: FileBackend) -> None:
    await backend.write(A, b"start")
    won: list[int] = []
    lost: list[int] = []

    async def attempt(number: int) -> None:
        try:
            await backend.write(A, str(number).encode(), expected_version=1)
        except VersionConflict:
            lost.append(number)
        else:
            won.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(attempt, number)

    assert (len(won), len(lost)) == (1, 7)
    assert (await backend.read(A)).data == str(won[0]).encode()


async def test_a_reader_sees_a_write_whole_or_not_at_all(backend: FileBackend) -> None:
    contents = [bytes([65 + number]) * 50_000 for number in range(2)]
    await backend.write(A, contents[0])
    done = trio.Event()

    async def write_in_turns() -> None:
        for number in range(20):
            await backend.write(A, contents[number % 2])
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_in_turns)
        while not done.is_set():
            read = await backend.read(A)
            assert read.data in contents
            assert read.entry.sha256 == sha256(read.data).hexdigest()


async def test_opening_twice_and_closing_twice_does_nothing(backend: FileBackend) -> None:
    await backend.write(A, b"kept")
    await backend.open()
    assert (await backend.read(A)).data == b"kept"
    await backend.close()
    await backend.close()
    await backend.open()
    assert (await backend.read(A)).data == b"kept"
    assert (await backend.stat(A)).version == 1


# --- moves ------------------------------------------------------------------------------------

MOVED = normalise("p/q.txt")


@pytest.mark.parametrize("target", [B, MOVED, normalise("a.txt.bak")])
async def test_a_moved_file_keeps_its_content_and_gets_a_version_that_neither_name_ever_had(
    backend: FileBackend, target: FilePath
) -> None:
    for number in range(4):
        await backend.write(target, str(number).encode())
    gone = (await backend.stat(target)).version
    await backend.delete(target)
    before = await backend.write(A, b"content")

    (entry,) = await backend.move(A, target)

    assert entry == (await backend.read(target)).entry
    assert (entry.path, entry.sha256, entry.modified) == (target, before.sha256, before.modified)
    assert entry.version > max(gone, before.version)
    assert (await backend.read(target)).data == b"content"
    with pytest.raises(FileMissing):
        await backend.read(A)
    assert (await backend.write(A, b"again")).version > before.version
    assert [each.path for each in await entries(backend)] == sorted([A, target])


async def test_a_directory_is_moved_with_all_files_below_it_and_nothing_beside_it(backend: FileBackend) -> None:
    for name in ("x/a", "x/y/b", "x0", "x-1", "xy/c"):
        await backend.write(normalise(name), name.encode())

    moved = await backend.move(normalise("x"), normalise("deep/z"))

    assert [entry.path for entry in moved] == ["deep/z/a", "deep/z/y/b"]
    assert [entry.path for entry in await entries(backend)] == ["deep/z/a", "deep/z/y/b", "x-1", "x0", "xy/c"]
    assert (await backend.read(normalise("deep/z/y/b"))).data == b"x/y/b"
    await backend.write(normalise("x"), b"the old name is free")


@pytest.mark.parametrize(("source", "target"), [("a.txt", "b.txt"), ("a.txt", "x"), ("x", "a.txt"), ("x", "w")])
async def test_a_move_onto_a_name_that_is_taken_replaces_nothing(
    backend: FileBackend, source: str, target: str
) -> None:
    for path in (A, B, NESTED, normalise("w/v.txt")):
        await backend.write(path, path.encode())
    before = await entries(backend)
    with pytest.raises(FileExists):
        await backend.move(normalise(source), normalise(target))
    assert await entries(backend) == before


@pytest.mark.parametrize(("source", "target"), [("x", "x/y/w"), ("x/y", "x"), ("x/y/z.txt", "x/y")])
async def test_a_move_below_or_above_itself_is_refused(backend: FileBackend, source: str, target: str) -> None:
    await backend.write(NESTED, b"deep")
    before = await entries(backend)
    with pytest.raises(InvalidPath, match="lies below the other"):
        await backend.move(normalise(source), normalise(target))
    assert await entries(backend) == before


async def test_a_move_of_what_is_not_there_or_at_another_version_is_refused(backend: FileBackend) -> None:
    await backend.write(A, b"one")
    before = await entries(backend)
    with pytest.raises(FileMissing):
        await backend.move(B, MOVED)
    for source, expected in ((A, 7), (B, 1)):
        with pytest.raises(VersionConflict):
            await backend.move(source, MOVED, expected_version=expected)
    assert await entries(backend) == before
    await backend.move(A, MOVED, expected_version=before[0].version)
    assert [entry.path for entry in await entries(backend)] == [MOVED]


@pytest.mark.row("BR-37")
async def test_a_move_may_change_the_case_of_a_name_and_not_run_into_another_case(backend: FileBackend) -> None:
    await backend.write(A, b"a")
    await backend.write(B, b"b")
    with pytest.raises(FileExists, match="only by case"):
        await backend.move(A, normalise("B.TXT"))
    (entry,) = await backend.move(A, normalise("A.TXT"))
    assert entry.path == "A.TXT"
    assert [each.path for each in await entries(backend)] == ["A.TXT", "b.txt"]


async def test_versions_set_aside_are_above_all_others_and_given_to_nothing_else(
    backend: FileBackend, environment: RealEnvironment
) -> None:
    made: Any = backend
    if not hasattr(backend, "reserve"):
        with pytest.raises(InvalidOption, match="expected a backend that sets versions aside"):
            BufferedBackend(made, environment)
        return
    await backend.write(A, b"x")
    await backend.write(A, b"x")
    first = await made.reserve(10)
    assert first > 2
    assert (await made.write(A, b"y", version=first + 3)).version == first + 3
    assert (await backend.write(B, b"z")).version >= first + 10
    assert (await backend.write(A, b"z")).version >= first + 10
    await backend.close()
    await backend.open()
    assert await made.reserve(1) > first + 10
