"""Middleware: the layers of the sandwich around an agent's model, and the built-in ones."""

from sapwood._public import publish as _publish
from sapwood.middleware._ask_user_question import AskUserQuestion as AskUserQuestion
from sapwood.middleware._call_limits import CallLimits as CallLimits
from sapwood.middleware._context import AgentInfo as AgentInfo
from sapwood.middleware._context import MiddlewareContext as MiddlewareContext
from sapwood.middleware._context_editing import ContextEditing as ContextEditing
from sapwood.middleware._context_providers import ContextProvider as ContextProvider
from sapwood.middleware._context_providers import ContextVarProvider as ContextVarProvider
from sapwood.middleware._context_providers import TraceContextProvider as TraceContextProvider
from sapwood.middleware._contract import Change as Change
from sapwood.middleware._contract import HookResult as HookResult
from sapwood.middleware._contract import Middleware as Middleware
from sapwood.middleware._contract import ModelCall as ModelCall
from sapwood.middleware._contract import ReplaceMessages as ReplaceMessages
from sapwood.middleware._contract import RunCall as RunCall
from sapwood.middleware._contract import Suspend as Suspend
from sapwood.middleware._contract import ToolInvocation as ToolInvocation
from sapwood.middleware._contract import overrides as overrides
from sapwood.middleware._conversation_title import ConversationTitle as ConversationTitle
from sapwood.middleware._debug_log import DebugLog as DebugLog
from sapwood.middleware._file_system import FileSystem as FileSystem
from sapwood.middleware._haltable import Haltable as Haltable
from sapwood.middleware._haltable import halt as halt
from sapwood.middleware._human_in_the_loop import Approval as Approval
from sapwood.middleware._human_in_the_loop import HumanInTheLoop as HumanInTheLoop
from sapwood.middleware._model_retry import ModelRetry as ModelRetry
from sapwood.middleware._patch_tool_calls import PatchToolCalls as PatchToolCalls
from sapwood.middleware._process_context import CapturedContext as CapturedContext
from sapwood.middleware._process_context import ProcessContext as ProcessContext
from sapwood.middleware._question import Choice as Choice
from sapwood.middleware._question import Question as Question
from sapwood.middleware._redaction import redact as redact
from sapwood.middleware._result_eviction import ResultEviction as ResultEviction
from sapwood.middleware._stack import Stack as Stack
from sapwood.middleware._summarization import Summarization as Summarization
from sapwood.middleware._summarization import summary_of as summary_of
from sapwood.middleware._todo_list import TodoItem as TodoItem
from sapwood.middleware._todo_list import TodoList as TodoList
from sapwood.middleware._tokens import message_tokens as message_tokens
from sapwood.middleware._tool_retry import ToolRetry as ToolRetry
from sapwood.middleware._tracing import Tracing as Tracing

_publish(globals())
