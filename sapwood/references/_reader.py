"""Reading a payload of any length in constant memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self, final

from sapwood.references._reference import Reference


@final
class ReferenceReader:
    """The chunks of a payload, in order, to be read once; `ReferenceStore.resolve_stream` makes it.

    Args:
        reference: What is read.
        read: Returns the next chunk, and empty bytes at the end; it raises what is wrong with them.
    """

    def __init__(self, reference: Reference, read: Callable[[], Awaitable[bytes]]) -> None:
        self.reference = reference
        self._read = read

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next chunk of at most 1 MiB; none of them is empty.

        Raises:
            ReferenceCorrupt: if it is damaged, or if the whole turns out not to have the reference's id.
            ReferenceUnavailable: if the store cannot answer.
        """
        chunk = await self._read()
        if not chunk:
            raise StopAsyncIteration
        return chunk
