"""The partition supervisor: N identical children, and a route from each key to one of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs

from sapwood.actors import Failure, Ref, Request, blocked_actor, check_branch, handle, message
from sapwood.errors import ActorDown, AskCycle, InvalidChildSpec, InvalidOption
from sapwood.supervision._children import Child, StartedChild
from sapwood.supervision._requests import StartChild
from sapwood.supervision._spec import ChildSpec, Strategy
from sapwood.supervision._stable_hash import stable_hash
from sapwood.supervision._supervisor import Supervisor

Arguments: TypeAlias = Sequence[Any]


@message("supervision.resize_partitions")
class ResizePartitions(Request[int]):
    partitions: int
    caller: Ref | None = None


class PartitionSupervisor(Supervisor):
    """Starts one child for each partition; `partition(supervisor, key)` leads to the one that serves a key.

    It shortens queues; it does not use more cores, since all partitions run in one loop (OTP Q16). The ids of the
    children are `"0"` to `"N-1"` (OTP M01). `auto_shutdown` and significant children are not offered.

    Args:
        spec: The child; its id is ignored, and it has no key, since all partitions would claim it.
        partitions: How many; None for the number of cores.
        with_arguments: Called as `with_arguments(args, index)` with the arguments of `spec` and the number of the
            partition; what it returns are the arguments of that partition (OTP M04).
        strategy: See `Supervisor`.
        restarts: Most restarts within `period`, all partitions together.
        period: Length of the sliding window, in seconds.

    Raises:
        InvalidChildSpec: if an option is out of its range; no child has been started (OTP M05).
    """

    def __init__(
        self,
        spec: ChildSpec,
        *,
        partitions: int | None = None,
        with_arguments: Callable[[tuple[Any, ...], int], Arguments] | None = None,
        strategy: Strategy = "one_for_one",
        restarts: int = 3,
        period: float = 5.0,
    ) -> None:
        if not isinstance(spec, ChildSpec):
            raise InvalidChildSpec("spec", "a spec made with child(...) or supervisor(...)", spec)
        if spec.birth.key is not None:
            raise InvalidChildSpec("key", "None: all partitions would claim the same key", spec.birth.key)
        if partitions is None:
            partitions = os.cpu_count() or 1
        if type(partitions) is not int or partitions < 1:
            raise InvalidChildSpec("partitions", "None or an int >= 1", partitions)
        specs = [_partition_spec(spec, index, with_arguments) for index in range(partitions)]
        super().__init__(specs, strategy=strategy, restarts=restarts, period=period)
        self._partitions = partitions
        self._most = partitions

    def route(self, key: object) -> Ref:
        """Return the present child of the partition that serves a key."""
        if not self._partitions:
            raise ActorDown(f"every partition of {self._cell.label}, which was resized to 0,")
        index = partition_index(key, self._partitions)
        child = self._children.get(str(index))
        if child is None or child.ref is None:
            last = child.last_cell if child is not None else None
            raise ActorDown(f"partition {index} of {self._cell.label}", last.reason if last is not None else None)
        return child.ref

    @handle
    async def start_child(self, message: StartChild) -> StartedChild | Failure:
        """Refuse more children than the partitions (OTP M01)."""
        return Failure(InvalidChildSpec("children", "no others than the partitions", message.spec))

    @handle
    async def resize(self, message: ResizePartitions) -> int | Failure:
        wanted, before = message.partitions, self._partitions
        if type(wanted) is not int or not 0 <= wanted <= self._most:
            return Failure(InvalidOption(f"resize_partitions: expected an int from 0 to {self._most}; got {wanted!r}"))
        removed, added = self._between(wanted, before), self._between(before, wanted)
        try:
            for child in removed:
                if child.cell is not None and message.caller is not None:
                    check_branch(message.caller._cell, (self._cell,), child.cell)
        except AskCycle as error:
            return Failure(error)
        self._partitions = min(wanted, before)  # no key leads to one that is about to stop, or has not started yet
        for child in reversed(removed):
            await self._stop_child(child)
        failure = await self._grow(added)
        if failure is not None:
            return Failure(failure)
        self._partitions = wanted
        return before

    def _between(self, first: int, end: int) -> list[Child]:
        found = (self._children.get(str(index)) for index in range(first, end))
        return [child for child in found if child is not None]

    async def _grow(self, added: list[Child]) -> Exception | None:
        """Start partitions, all or none; return what made one fail."""
        begun: list[Child] = []
        for child in added:
            if child.state == "stopped":  # unless somebody has started it by hand
                outcome = await self._launch(child)
                if isinstance(outcome, Exception):
                    for one in reversed(begun):
                        await self._stop_child(one)
                    return outcome
                begun.append(child)
        return None

    def _group(self, child: Child) -> list[Child]:
        # Partitions that a resize has stopped do not come back with the others.
        return [one for one in super()._group(child) if one is child or int(one.spec.id) < self._partitions]


def partition(supervisor: Ref, key: object) -> Ref:
    """Return the child of a partition supervisor that serves a key; reads its table directly, with no task switch.

    A key leads to the same partition as long as the supervisor lives, and to the new child after a restart of that
    (OTP M02, M03).

    Args:
        supervisor: Ref of a `PartitionSupervisor`.
        key: An int, which leads to `abs(key) % partitions`; or what `stable_hash` takes, which leads to its hash
            modulo the number. A bool counts as a key of its own, not as 0 or 1.

    Raises:
        ActorDown: if the supervisor is dead, the partition has no process at this moment (OTP M06), or there are no
            partitions (OTP M07).
        InvalidOption: if `supervisor` is another kind of actor, or the key has a type that cannot be hashed so.
    """
    return _actor(supervisor).route(key)


def partition_count(supervisor: Ref) -> int:
    """Return the number of partitions.

    Raises:
        ActorDown: if the supervisor is dead.
        InvalidOption: if it is another kind of actor.
    """
    return _actor(supervisor)._partitions


async def resize_partitions(supervisor: Ref, partitions: int) -> int:
    """Change how many partitions run, and so which one each key leads to; return how many did before (OTP M07).

    Fewer stops the highest ids, more starts them again, from scratch; all specs stay. What the partitions hold is not
    moved. One resize at a time.

    Args:
        supervisor: Ref of a `PartitionSupervisor`.
        partitions: How many shall run, from 0 to the number it was started with.

    Raises:
        InvalidOption: if the number is out of that range, or `supervisor` is another kind of actor.
        ChildFailed: if a partition fails to start; as many run as before.
        AskCycle: if the calling actor belongs to a partition that is to stop.
        ActorDown: if the supervisor is dead.
    """
    _actor(supervisor)
    return await supervisor.ask(ResizePartitions(partitions, blocked_actor()), timeout=None)


def partition_index(key: object, partitions: int) -> int:
    """Return the number of the partition that serves a key (OTP M02)."""
    if isinstance(key, int) and not isinstance(key, bool):
        return abs(key) % partitions
    return stable_hash(key) % partitions


def _actor(supervisor: Ref) -> PartitionSupervisor:
    cell = supervisor._cell
    if cell.reason is not None:
        raise ActorDown(cell.label, cell.reason)
    if not isinstance(cell.actor, PartitionSupervisor):
        raise InvalidOption(f"partition: expected the ref of a PartitionSupervisor; got {supervisor!r}")
    return cell.actor


def _partition_spec(
    spec: ChildSpec, index: int, with_arguments: Callable[[tuple[Any, ...], int], Arguments] | None
) -> ChildSpec:
    birth = spec.birth
    args = birth.args
    if with_arguments is not None:
        made: object = with_arguments(args, index)
        if not isinstance(made, list | tuple):
            raise InvalidChildSpec("with_arguments", "a function that returns a list or tuple of arguments", made)
        args = tuple(made)
    title = f"{birth.title or birth.name}-{index}"
    return attrs.evolve(spec, id=str(index), birth=attrs.evolve(birth, args=args, title=title))
