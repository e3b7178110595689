"""Pure data of a conversation: messages, state, to-dos, interrupts, state operations, journal and stream events.

Nothing here does anything: an event goes in, a new state comes out. The events that make up the journal are in
`sapwood.conversation.journal`; those that subscribers see are here.
"""

from sapwood._public import publish as _publish
from sapwood.conversation import journal as journal
from sapwood.conversation._event_json import EVENT_VERSION as EVENT_VERSION
from sapwood.conversation._event_json import event_from_json as event_from_json
from sapwood.conversation._event_json import event_to_json as event_to_json
from sapwood.conversation._evolve import evolve as evolve
from sapwood.conversation._export import EXPORT_VERSION as EXPORT_VERSION
from sapwood.conversation._export import from_json as from_json
from sapwood.conversation._export import to_json as to_json
from sapwood.conversation._interrupts import VERDICTS as VERDICTS
from sapwood.conversation._interrupts import Accepted as Accepted
from sapwood.conversation._interrupts import AlreadyDecided as AlreadyDecided
from sapwood.conversation._interrupts import Decision as Decision
from sapwood.conversation._interrupts import DecisionOutcome as DecisionOutcome
from sapwood.conversation._interrupts import Interrupt as Interrupt
from sapwood.conversation._interrupts import InterruptKind as InterruptKind
from sapwood.conversation._interrupts import Invalid as Invalid
from sapwood.conversation._interrupts import Stale as Stale
from sapwood.conversation._interrupts import Verdict as Verdict
from sapwood.conversation._interrupts import edited_call as edited_call
from sapwood.conversation._interrupts import judge as judge
from sapwood.conversation._json import clean_text as clean_text
from sapwood.conversation._json import copy_json as copy_json
from sapwood.conversation._json_schema import json_schema as json_schema
from sapwood.conversation._messages import AssistantMessage as AssistantMessage
from sapwood.conversation._messages import Message as Message
from sapwood.conversation._messages import ToolCall as ToolCall
from sapwood.conversation._messages import ToolResult as ToolResult
from sapwood.conversation._messages import Usage as Usage
from sapwood.conversation._messages import UserMessage as UserMessage
from sapwood.conversation._operations import AddMessage as AddMessage
from sapwood.conversation._operations import Operation as Operation
from sapwood.conversation._operations import PatchMetadata as PatchMetadata
from sapwood.conversation._operations import SetTodos as SetTodos
from sapwood.conversation._pairs import check_pairs as check_pairs
from sapwood.conversation._pairs import distinct_calls as distinct_calls
from sapwood.conversation._pairs import orphan_results as orphan_results
from sapwood.conversation._pairs import repair_pairs as repair_pairs
from sapwood.conversation._pairs import unanswered_calls as unanswered_calls
from sapwood.conversation._state import CallPhase as CallPhase
from sapwood.conversation._state import Counters as Counters
from sapwood.conversation._state import Delivery as Delivery
from sapwood.conversation._state import PendingCall as PendingCall
from sapwood.conversation._state import QueuedMessage as QueuedMessage
from sapwood.conversation._state import Run as Run
from sapwood.conversation._state import RunPhase as RunPhase
from sapwood.conversation._state import RunTrigger as RunTrigger
from sapwood.conversation._state import State as State
from sapwood.conversation._state import StatusName as StatusName
from sapwood.conversation._state import idempotency_key as idempotency_key
from sapwood.conversation._stream import LOSS as LOSS
from sapwood.conversation._stream import AgentShutdown as AgentShutdown
from sapwood.conversation._stream import Gap as Gap
from sapwood.conversation._stream import InterruptClosed as InterruptClosed
from sapwood.conversation._stream import InterruptDecided as InterruptDecided
from sapwood.conversation._stream import InterruptRaised as InterruptRaised
from sapwood.conversation._stream import Loss as Loss
from sapwood.conversation._stream import MessageCompleted as MessageCompleted
from sapwood.conversation._stream import MetadataChanged as MetadataChanged
from sapwood.conversation._stream import RunFinished as RunFinished
from sapwood.conversation._stream import StatusChanged as StatusChanged
from sapwood.conversation._stream import StreamEvent as StreamEvent
from sapwood.conversation._stream import TextDiscarded as TextDiscarded
from sapwood.conversation._stream import TextStreamed as TextStreamed
from sapwood.conversation._stream import TodosChanged as TodosChanged
from sapwood.conversation._stream import ToolCallSeen as ToolCallSeen
from sapwood.conversation._stream import ToolFinished as ToolFinished
from sapwood.conversation._stream import ToolStarted as ToolStarted
from sapwood.conversation._stream import UsageCounted as UsageCounted
from sapwood.conversation._todos import Todo as Todo
from sapwood.conversation._todos import TodoStatus as TodoStatus
from sapwood.conversation._todos import merge_todos as merge_todos
from sapwood.conversation._todos import read_todos as read_todos
from sapwood.conversation._todos import replace_todos as replace_todos
from sapwood.conversation._tool_spec import ToolSpec as ToolSpec

_publish(globals())
