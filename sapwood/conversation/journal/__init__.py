"""The journal of a conversation: typed events, and the fold that turns them into its state."""

from sapwood._public import publish as _publish
from sapwood.conversation.journal._events import AfterFailure as AfterFailure
from sapwood.conversation.journal._events import Cause as Cause
from sapwood.conversation.journal._events import ClosingOutcome as ClosingOutcome
from sapwood.conversation.journal._events import ConversationCopied as ConversationCopied
from sapwood.conversation.journal._events import ConversationCreated as ConversationCreated
from sapwood.conversation.journal._events import ConversationRouted as ConversationRouted
from sapwood.conversation.journal._events import InterruptClosed as InterruptClosed
from sapwood.conversation.journal._events import InterruptDecided as InterruptDecided
from sapwood.conversation.journal._events import InterruptRaised as InterruptRaised
from sapwood.conversation.journal._events import JournalEvent as JournalEvent
from sapwood.conversation.journal._events import MessageAdded as MessageAdded
from sapwood.conversation.journal._events import MessageQueued as MessageQueued
from sapwood.conversation.journal._events import MessagesReplaced as MessagesReplaced
from sapwood.conversation.journal._events import MessageUnqueued as MessageUnqueued
from sapwood.conversation.journal._events import ModelAnswered as ModelAnswered
from sapwood.conversation.journal._events import ModelAttemptFailed as ModelAttemptFailed
from sapwood.conversation.journal._events import ModelCallStarted as ModelCallStarted
from sapwood.conversation.journal._events import OperationsApplied as OperationsApplied
from sapwood.conversation.journal._events import PauseAsked as PauseAsked
from sapwood.conversation.journal._events import QueuedMessageEdited as QueuedMessageEdited
from sapwood.conversation.journal._events import RunFinished as RunFinished
from sapwood.conversation.journal._events import RunOutcome as RunOutcome
from sapwood.conversation.journal._events import RunStarted as RunStarted
from sapwood.conversation.journal._events import StateReset as StateReset
from sapwood.conversation.journal._events import SubAgentEnded as SubAgentEnded
from sapwood.conversation.journal._events import SubAgentStarted as SubAgentStarted
from sapwood.conversation.journal._events import ToolDeferred as ToolDeferred
from sapwood.conversation.journal._events import ToolFinished as ToolFinished
from sapwood.conversation.journal._events import ToolIntended as ToolIntended
from sapwood.conversation.journal._events import ToolStarted as ToolStarted
from sapwood.conversation.journal._fold import AFTER_RUN as AFTER_RUN
from sapwood.conversation.journal._fold import apply as apply
from sapwood.conversation.journal._fold import fold as fold

_publish(globals())
