"""Versioned values: reading, writing, versions, conflicts, batches, logs; in memory and in a store."""

from __future__ import annotations

import hashlib
from threading import Lock
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.actors import SimulatedEnvironment
from sapwood.errors import ConflictError, InvalidOption
from sapwood.messaging.shared import ABSENT, ConflictStrategy, SharedMemory, VersionedValue, Write
from sapwood.messaging.shared._strategies import merge
from tests.messaging.shared.kit import Awaited


async def state_of(memory: Awaited) -> dict[str, tuple[Any, int]]:
    return {key: (value.value, value.version) for key, value in (await memory.snapshot()).items()}


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.row("S1-036")
async def test_a_value_is_immutable_and_carries_the_checksum_of_its_rule(memory: Awaited) -> None:
    value = await memory.write("positions:BTC", {"quantity": 2.5}, "portfolio")
    expected = hashlib.sha256(b"positions:BTC:0:{'quantity': 2.5}:portfolio").hexdigest()[:12]
    assert (value.key, value.version, value.agent_id, value.checksum) == ("positions:BTC", 0, "portfolio", expected)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        value.version = 7
    assert value.is_intact()
    value.value["quantity"] = 3
    assert not value.is_intact()


@pytest.mark.row("S1-036")
def test_the_age_of_a_value_is_told_in_milliseconds_of_the_wall_clock() -> None:
    value = VersionedValue.make("k", 1, 0, "a", 1_700_000_000 * 10**9)

    class Later(SimulatedEnvironment):
        def wall(self) -> float:
            return self.epoch + 1.5

    assert value.age_ms(Later()) == pytest.approx(1_500)


@pytest.mark.row("S1-037")
async def test_changing_what_was_read_or_written_changes_nothing_in_the_store(memory: Awaited) -> None:
    given: dict[str, Any] = {"lots": [1]}
    returned = await memory.write("k", given)
    given["lots"].append(2)
    returned.value["lots"].append(3)
    for read in ((await memory.read("k")), (await memory.read_many(["k"]))["k"], (await memory.snapshot())["k"]):
        assert read.value == {"lots": [1]}
        read.value["lots"].append(4)
    assert (await memory.read("k")).value == {"lots": [1]}
    assert await memory.read("absent") is None


# --- versions -------------------------------------------------------------------------------------


@pytest.mark.row("S1-038", "S1-039")
async def test_versions_begin_at_zero_grow_by_one_and_never_restart(memory: Awaited) -> None:
    versions = [(await memory.write("k", number)).version for number in range(3)]
    assert await memory.delete("k")
    versions.append((await memory.write("k", "again")).version)
    assert versions == [0, 1, 2, 3]
    assert (await memory.write("other", 1)).version == 0


@pytest.mark.row("S1-039", "S1-040")
async def test_a_writer_that_knew_a_deleted_value_cannot_mistake_its_successor_for_it(memory: Awaited) -> None:
    known = await memory.write("k", "first")
    await memory.delete("k")
    await memory.write("k", "first")
    with pytest.raises(ConflictError):
        await memory.write("k", "lost update", expected_version=known.version)


@pytest.mark.row("S1-040", "S1-041")
async def test_another_version_than_expected_is_a_conflict_and_writes_nothing(memory: Awaited) -> None:
    await memory.write("k", "v0", "x")
    await memory.write("k", "v1", "x", expected_version=0)
    await memory.write("k", "v2", "x", expected_version=-1)
    with pytest.raises(
        ConflictError, match=r"^Version conflict on 'k': agent 'y' expected v1 but current is v2$"
    ) as caught:
        await memory.write("k", "v3", "y", expected_version=1)
    error = caught.value
    assert (error.key, error.expected_version, error.actual_version, error.agent_id) == ("k", 1, 2, "y")
    assert await state_of(memory) == {"k": ("v2", 2)}
    assert (await memory.statistics()).conflicts == 1


@pytest.mark.row("S1-040", "S1-041")
async def test_an_expected_version_on_an_absent_key_is_a_conflict(memory: Awaited) -> None:
    with pytest.raises(ConflictError, match="expected v5 but the key is absent") as caught:
        await memory.write("k", 1, expected_version=5)
    assert (caught.value.expected_version, caught.value.actual_version) == (5, -1)
    with pytest.raises(ConflictError):
        await memory.delete("k", expected_version=0)
    assert await memory.get_keys() == []
    assert (await memory.write("k", 1, expected_version=ABSENT)).version == 0
    with pytest.raises(ConflictError, match="expected no value but current is v0"):
        await memory.write("k", 2, expected_version=ABSENT)


@pytest.mark.row("S1-044")
async def test_delete_says_whether_the_key_was_there(memory: Awaited) -> None:
    await memory.write("k", 1)
    with pytest.raises(ConflictError):
        await memory.delete("k", expected_version=3)
    assert await memory.delete("k", expected_version=0) is True
    assert await memory.delete("k") is False
    assert await memory.read("k") is None


# --- several keys ---------------------------------------------------------------------------------


@pytest.mark.row("S1-042", "S1-045")
async def test_several_keys_are_read_together_and_keys_are_listed_sorted(memory: Awaited) -> None:
    for key in ("b:2", "a:10", "a:9", "A:1", "ä:1"):
        await memory.write(key, key.upper())
    found = await memory.read_many(["a:9", "nowhere", "b:2"])
    assert {key: value and value.value for key, value in found.items()} == {
        "a:9": "A:9",
        "nowhere": None,
        "b:2": "B:2",
    }
    assert await memory.get_keys() == sorted(["A:1", "a:10", "a:9", "b:2", "ä:1"])
    assert await memory.get_keys("a:") == ["a:10", "a:9"]
    assert await memory.get_keys("%") == []
    snapshot = await memory.snapshot("a:")
    assert [(key, value.value, value.version, value.agent_id) for key, value in snapshot.items()] == [
        ("a:10", "A:10", 0, "a"),
        ("a:9", "A:9", 0, "a"),
    ]


@pytest.mark.row("S1-043")
async def test_a_batch_is_written_whole_or_not_at_all(memory: Awaited) -> None:
    await memory.write("a", 0)
    before = await state_of(memory)
    with pytest.raises(ConflictError) as caught:
        await memory.write_batch([Write("a", 1, expected_version=0), Write("b", 1, expected_version=4), Write("c", 1)])
    assert caught.value.key == "b"
    assert await state_of(memory) == before
    written = await memory.write_batch([Write("a", 1, expected_version=0), Write("b", 1, ABSENT), Write("c", [1])])
    assert [(value.key, value.version) for value in written] == [("a", 1), ("b", 0), ("c", 0)]
    assert [(one.key, one.batch) for one in await memory.write_log()] == [
        ("a", False),
        ("a", True),
        ("b", True),
        ("c", True),
    ]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([Write("a", 1), Write("a", 2)], "one entry for each key; got two for 'a'"),
        ([Write("a", 1), ("b", 2)], "expected entries such as"),
        ([Write("a", 1), Write("", 2)], "shared memory key: expected a text"),
        ([Write("a", 1), Write("b", 2, expected_version=-3)], "expected a version from 0"),
        ([Write("a", 1), Write("b", 2, expected_version=True)], "expected a version from 0"),
        ([Write("a", 1), Write("b", 2, expected_version=1, based_on=1)], "got both"),
        ([Write("a", 1), Write("b", 2, based_on=-1)], "based_on: expected None or a version"),
        ([Write("a", 1), Write("b", Lock())], "can be copied; got lock"),
    ],
    ids=["twice", "tuple", "key", "version", "bool", "both", "base", "lock"],
)
async def test_a_batch_with_an_entry_that_cannot_work_changes_nothing(
    memory: Awaited, entries: list[Write], said: str
) -> None:
    with pytest.raises(InvalidOption, match=said):
        await memory.write_batch(entries)
    assert await state_of(memory) == {}


async def test_a_writer_without_a_name_is_refused(memory: Awaited) -> None:
    with pytest.raises(InvalidOption, match="agent_id: expected the name of who writes"):
        await memory.write("k", 1, "")
    with pytest.raises(InvalidOption, match="agent_id"):
        await memory.delete("k", "")


# --- strategies -----------------------------------------------------------------------------------


@pytest.mark.row("S1-035")
@pytest.mark.parametrize("strategy", [ConflictStrategy.LATEST_WINS], ids=["latest"])
async def test_by_default_the_latest_write_wins_whatever_it_was_based_on(memory: Awaited) -> None:
    await memory.write("k", "v0")
    await memory.write("k", "v1")
    assert (await memory.write("k", "late", based_on=0)).version == 2
    assert await state_of(memory) == {"k": ("late", 2)}


@pytest.mark.row("S1-035")
@pytest.mark.parametrize("strategy", [ConflictStrategy.HIGHEST_VERSION], ids=["highest"])
async def test_with_highest_version_a_write_based_on_an_older_version_loses_and_is_told(memory: Awaited) -> None:
    await memory.write("k", "v0", "x")
    await memory.write("k", "v1", "x", based_on=0)
    kept = await memory.write("k", "late", "y", based_on=0)
    assert (kept.value, kept.version, kept.agent_id) == ("v1", 1, "x")
    assert (await memory.write("k", "v2", "y", based_on=1)).version == 2
    assert await state_of(memory) == {"k": ("v2", 2)}
    assert (await memory.statistics()).superseded == 1
    assert [(one.outcome, one.agent_id, one.version) for one in await memory.write_log()][2] == ("superseded", "y", 1)


@pytest.mark.row("S1-035")
@pytest.mark.parametrize("strategy", [ConflictStrategy.MERGE_FIELDS], ids=["merge"])
async def test_with_merge_fields_what_only_one_side_changed_is_kept_from_both(memory: Awaited) -> None:
    await memory.write("k", {"a": 1, "b": 1, "c": 1, "gone": 1})
    await memory.write("k", {"a": 2, "b": 1, "c": 1, "gone": 1, "theirs": 1}, "x", based_on=0)
    merged = await memory.write("k", {"a": 1, "b": 5, "c": 1, "mine": 1}, "y", based_on=0)
    assert merged.value == {"a": 2, "b": 5, "c": 1, "theirs": 1, "mine": 1}
    assert merged.version == 2
    with pytest.raises(ConflictError, match="current is v2; both changed a, theirs") as caught:
        await memory.write("k", {"a": 9, "b": 1, "c": 1, "gone": 1, "theirs": 2}, "z", based_on=0)
    assert caught.value.fields == ("a", "theirs")
    assert (await memory.read("k")).version == 2
    assert (await memory.write("k", {"patch": 1})).value == {**merged.value, "patch": 1}
    await memory.write("k", [1])
    with pytest.raises(ConflictError):
        await memory.write("k", {"a": 1}, based_on=2)
    assert (await memory.write("k", [2], based_on=4)).value == [2]


@pytest.mark.parametrize("strategy", list(ConflictStrategy), ids=[member.value for member in ConflictStrategy])
async def test_a_write_based_on_what_is_not_there_is_a_conflict_under_every_strategy(memory: Awaited) -> None:
    with pytest.raises(ConflictError):
        await memory.write("k", {}, based_on=0)
    await memory.write("k", {})
    with pytest.raises(ConflictError):
        await memory.write("k", {}, based_on=1)
    await memory.delete("k")
    await memory.write("k", {"a": 1})
    assert (await memory.read("k")).version == 1


@pytest.mark.parametrize("strategy", [ConflictStrategy.MERGE_FIELDS], ids=["merge"])
async def test_a_value_from_before_a_deletion_is_no_base_for_merging(memory: Awaited) -> None:
    await memory.write("k", {"a": 1})
    await memory.write("k", {"a": 2})
    await memory.delete("k")
    await memory.write("k", {"b": 1})
    for version in (0, 1):
        with pytest.raises(ConflictError):
            await memory.write("k", {"a": 1, "c": 1}, based_on=version)


def test_an_unknown_strategy_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidOption, match="'latest_wins', 'highest_version', 'merge_fields'; got 'newest'"):
        SharedMemory("newest")
    assert SharedMemory("merge_fields").strategy is ConflictStrategy.MERGE_FIELDS


fields = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2))


@given(fields, fields, fields)
def test_a_merge_is_symmetric_and_loses_no_change(
    base: dict[str, int], theirs: dict[str, int], mine: dict[str, int]
) -> None:
    merged, both = merge(base, theirs, mine)
    mirrored, both_again = merge(base, mine, theirs)
    assert sorted(both) == sorted(both_again)
    if not both:
        assert merged == mirrored
    for field in {*base, *theirs, *mine} - set(both):
        before, there, here = (side.get(field) for side in (base, theirs, mine))
        assert merged.get(field) == (here if here != before else there)


# --- update and logs ------------------------------------------------------------------------------


async def test_update_replaces_a_value_by_what_a_function_makes_of_it(memory: Awaited) -> None:
    def add(value: list[int]) -> list[int]:
        value.append(len(value))
        return value

    assert (await memory.update("k", add, default=[])).value == [0]
    assert (await memory.update("k", add)).value == [0, 1]

    def fail(value: object) -> object:
        raise KeyError("no")

    with pytest.raises(KeyError):
        await memory.update("k", fail)
    assert (await memory.read("k")).version == 1


@pytest.mark.row("S1-046")
async def test_logs_and_statistics_say_what_was_done(memory: Awaited) -> None:
    await memory.write("a", 1, "x")
    await memory.write_batch([Write("a", 2), Write("b", 2)], "y")
    await memory.read("a")
    await memory.read_many(["a", "absent"])
    await memory.delete("a", "z")
    log = await memory.write_log()
    assert [(one.key, one.agent_id, one.version, one.outcome, one.batch) for one in log] == [
        ("a", "x", 0, "written", False),
        ("a", "y", 1, "written", True),
        ("b", "y", 0, "written", True),
        ("a", "z", 1, "deleted", False),
    ]
    assert await memory.write_log(1) == log[-1:]
    assert await memory.write_log(0) == []
    statistics = await memory.statistics()
    assert (statistics.keys_count, statistics.total_reads, statistics.total_writes, statistics.deletes) == (1, 3, 3, 1)


@pytest.mark.row("S1-046")
def test_the_read_log_says_who_read_which_version() -> None:
    memory = SharedMemory(log_size=3)
    memory.write("a", 1, agent_id="x")
    memory.read("gone")
    memory.read("a", agent_id="reader")
    memory.read_many(["a", "b"], agent_id="auditor")
    assert [(one.key, one.agent_id, one.version, one.batch) for one in memory.read_log()] == [
        ("a", "reader", 0, False),
        ("a", "auditor", 0, True),
        ("b", "auditor", None, True),
    ]
    assert memory.statistics().total_reads == 4
