"""Middleware: the layers of the sandwich around an agent's model, and the built-in ones."""

from sapwood._public import publish as _publish
from sapwood.middleware._context import AgentInfo as AgentInfo
from sapwood.middleware._context import MiddlewareContext as MiddlewareContext
from sapwood.middleware._contract import Change as Change
from sapwood.middleware._contract import HookResult as HookResult
from sapwood.middleware._contract import Middleware as Middleware
from sapwood.middleware._contract import ModelCall as ModelCall
from sapwood.middleware._contract import ReplaceMessages as ReplaceMessages
from sapwood.middleware._contract import RunCall as RunCall
from sapwood.middleware._contract import Suspend as Suspend
from sapwood.middleware._contract import ToolInvocation as ToolInvocation
from sapwood.middleware._contract import overrides as overrides
from sapwood.middleware._file_system import FileSystem as FileSystem
from sapwood.middleware._human_in_the_loop import Approval as Approval
from sapwood.middleware._human_in_the_loop import HumanInTheLoop as HumanInTheLoop
from sapwood.middleware._patch_tool_calls import PatchToolCalls as PatchToolCalls
from sapwood.middleware._stack import Stack as Stack
from sapwood.middleware._todo_list import TodoItem as TodoItem
from sapwood.middleware._todo_list import TodoList as TodoList

_publish(globals())
