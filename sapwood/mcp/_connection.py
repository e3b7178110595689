"""The connection to an MCP server: an actor that lives as long as the connection does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from sapwood.actors import Actor, Continue, Crashed, Reply, TaskDone, TaskRef, handle
from sapwood.errors import CodecError, McpCallLost, McpCallRefused, McpUnavailable
from sapwood.mcp._board import Board
from sapwood.mcp._descriptions import Description, hide
from sapwood.mcp._listing import McpTool, list_tools
from sapwood.mcp._messages import CallTool, CancelCall, Connected, Connecting, Listed, Refresh
from sapwood.mcp._results import McpResult, read_result
from sapwood.mcp._transport import open_client

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.session import IncomingMessage

KEY_NAME: Final = "sapwood/idempotency-key"
"""Where the key of a call stands in its `_meta`."""

LISTEN_AGAIN: Final = 1.0
"""Seconds until a broken stream of changes is opened again."""

LISTEN_WITHIN: Final = 10.0
"""Seconds that the server has to take a subscription to changes."""

SESSION_GONE: Final = "Session terminated"
"""What the library says of a server that does not know the session any more, as after its restart."""

FORGOTTEN: Final = "it has been restarted, and does not know this connection any more"


class McpConnection(Actor):
    """Holds one connection to a server, in one task that opens and closes it; ends when the connection does.

    A connection that is lost is a crash of this actor, after which its supervisor starts the next one. Calls run at
    the same time, each in a task of its own.

    Args:
        board: What is known of the server.
        description: How it is reached.
        start_timeout: Seconds until its tools must be known.
        wait: Whether the first start waits for the connection, and fails without it.
    """

    def __init__(self, board: Board, description: Description, start_timeout: float, *, wait: bool) -> None:
        self._board = board
        self._description = description
        self._start_timeout = start_timeout
        self._wait = wait
        self._client: Client | None = None
        self._session: TaskRef | None = None
        self._refresh: TaskRef | None = None
        self._stale = False
        self._is_forgotten = False
        self._problem: Exception | None = None
        self._calls: dict[TaskRef, tuple[CallTool, Reply[McpResult]]] = {}

    def format_state(self) -> str:
        return f"server={self._board.name!r}, at={self._description.address!r}, calls={len(self._calls)}"

    # --- life -------------------------------------------------------------------------------------

    async def on_start(self) -> Continue | None:
        self._tell(Connecting(self.ref))
        if self._wait and not self._board.connections:
            await self._connect()
            return None
        await trio.lowlevel.checkpoint()
        # A server that is away must not hold up the supervisor, which has to be able to stop.
        return Continue()

    async def on_continue(self, token: Any) -> None:
        await self._connect()

    async def _connect(self) -> None:
        ready = trio.Event()
        self._session = self.start_task(self._serve, ready, name="session")
        with trio.move_on_after(self._start_timeout):
            await ready.wait()
        if self._problem is not None:
            raise self._problem
        if not ready.is_set():
            raise self._unavailable(f"it did not answer within {self._start_timeout:g} s")
        if self._client is None:
            raise self._unavailable("the connection was closed")

    async def _serve(self, ready: trio.Event) -> None:
        """Open the connection, keep it, and close it; all in this task, as its cancel scopes want (UP-41)."""
        ended = trio.Event()

        def end() -> None:
            self._lose()
            ended.set()

        try:
            async with open_client(self._description, end, self._hear) as client:
                try:
                    tools = await list_tools(client, self._board.name)
                    self._client = client
                    known = client.server_info
                    implementation = "" if known is None else f"{known.name} {known.version}".strip()
                    if self._board.keeper is not None:
                        await self._board.keeper.ask(Connected(self.ref, tools, implementation))
                    ready.set()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._listen, client)
                        await ended.wait()
                        nursery.cancel_scope.cancel()
                finally:
                    # Closing may take seconds, and ends calls before it is over.
                    self._lose()
        except Exception as error:
            self._problem = self._unavailable(self._told(error))
            raise self._problem from None
        finally:
            ready.set()
        self._problem = self._unavailable("it closed the connection")
        raise self._problem

    def _lose(self) -> None:
        self._client = None
        self._board.lose(self.ref, self.environment.wall())

    def _tell(self, message: Connecting | Listed) -> None:
        if self._board.keeper is not None:
            self._board.keeper.tell(message)

    def _unavailable(self, reason: str) -> McpUnavailable:
        return McpUnavailable(self._board.name, reason)

    def _told(self, error: BaseException) -> str:
        """Return why something failed, without secrets."""
        leaf = _first_leaf(error)
        text = f"{type(leaf).__name__}: {leaf}" if str(leaf) else type(leaf).__name__
        return hide(text, self._description)

    # --- changes of the listing -------------------------------------------------------------------

    async def _hear(self, message: IncomingMessage) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self.ref.tell(Refresh())
        await trio.lowlevel.checkpoint()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes where the protocol has subscriptions; older servers tell without.

        Raises:
            MCPError: if the server refuses what it has granted before; the connection is of no use then.
        """
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        is_granted = False
        while True:
            try:
                with trio.fail_after(LISTEN_WITHIN) as scope:
                    async with client.listen(tools_list_changed=True) as changes:
                        scope.deadline = math.inf
                        is_granted = True
                        # What changed before the subscription stood was told to nobody.
                        self.ref.tell(Refresh())
                        async for _ in changes:
                            self.ref.tell(Refresh())
            except (ListenNotSupportedError, MCPError, trio.TooSlowError):
                if is_granted:
                    raise
                return
            except SubscriptionLost:
                pass
            await trio.sleep(LISTEN_AGAIN)

    @handle
    def refresh(self, message: Refresh) -> None:
        if self._client is None:
            return
        if self._refresh is not None:
            self._stale = True
            return
        self._refresh = self.start_task(self._list, self._client, name="listing")

    async def _list(self, client: Client) -> tuple[McpTool, ...]:
        with trio.fail_after(self._start_timeout):
            return await list_tools(client, self._board.name)

    def _listed(self, done: TaskDone) -> None:
        self._refresh = None
        if isinstance(done.reason, Crashed):
            raise self._unavailable(f"its tools cannot be listed: {self._told(done.reason.exception)}")
        if done.value is not None:
            self._tell(Listed(self.ref, done.value))
        if self._stale:
            self._stale = False
            self.refresh(Refresh())

    # --- calls ------------------------------------------------------------------------------------

    @handle
    def call_tool(self, message: CallTool) -> None:
        reply: Reply[McpResult] = self.reply_later()
        task = self.start_task(self._call, message, name=f"call of {message.tool}")
        self._calls[task] = (message, reply)

    async def _call(self, message: CallTool) -> McpResult:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED
        from pydantic import ValidationError

        name, client = self._board.name, self._client
        if client is None:
            raise self._unavailable("the connection was lost")
        try:
            meta: Any = {KEY_NAME: message.key} if message.key else None
            answer = await client.call_tool(message.tool, message.arguments, meta=meta)
            return read_result(answer)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise McpCallLost(name, message.tool) from None
            if error.message == SESSION_GONE:
                self._is_forgotten = True
                raise self._unavailable(FORGOTTEN) from None
            raise McpCallRefused(name, message.tool, hide(error.message, self._description), error.code) from None
        except (CodecError, RuntimeError, ValidationError) as error:
            raise McpCallRefused(name, message.tool, self._told(error)) from None

    @handle
    def cancel_call(self, message: CancelCall) -> None:
        for task, (call, _) in self._calls.items():
            if call.id == message.id:
                task.cancel()

    @handle
    def task_ended(self, message: TaskDone) -> None:
        if message.task is self._session:
            raise self._problem or self._unavailable("the connection was closed")
        if message.task is self._refresh:
            self._listed(message)
            return
        call, reply = self._calls.pop(message.task)
        if isinstance(message.reason, Crashed):
            error = message.reason.exception
            reply.fail(error if isinstance(error, Exception) else McpCallLost(self._board.name, call.tool))
        elif message.value is not None:
            reply(message.value)
        else:
            reply.fail(McpCallLost(self._board.name, call.tool))
        if self._is_forgotten:
            # Only now, so that whoever called learns that nothing was done.
            raise self._unavailable(FORGOTTEN)


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
