"""Every exception that Sapwood raises, in one tree.

```
SapwoodError
├── misuse: the call was wrong; mend the calling code (each also derives from the fitting builtin)
│   ├── InvalidOption        (ValueError)    an option that does not exist, or a value out of its range
│   ├── InvalidMessage       (TypeError)     something that is not a message was sent, or a declaration is wrong
│   ├── InvalidChildSpec     (ValueError)    a child spec or a supervisor option that cannot work
│   ├── InvalidApplication   (ValueError)    an application that cannot work
│   ├── MissingDependency    (ValueError)    an application requires one that is not in the set
│   ├── DependencyCycle      (ValueError)    applications that require one another
│   ├── InvalidKey           (TypeError)     a registry key that is no typed tuple
│   ├── InvalidTool          (TypeError)     a function that cannot be offered to a model
│   ├── AlreadySubscribed    (ValueError)    a handler subscribed twice to one pattern of events
│   ├── DuplicateName        (ValueError)    a wire name, tool, middleware or child id used twice
│   ├── MissingExtra         (ImportError)   a package that an optional part of Sapwood needs is not installed
│   ├── WrongThread          (RuntimeError)  a ref or registry used outside the thread of its runtime
│   ├── NotOwner             (RuntimeError)  a supervised task awaited by another actor than the one that started it
│   └── NotRunningInside     (RuntimeError)  an attribute of an actor read before the runtime started it
├── ActorError: something about another actor
│   ├── ActorDown            the target is dead, or died before it answered
│   ├── AskTimeout           no answer in time; the request may still be carried out
│   ├── SelfAsk              an actor asked itself
│   ├── AskCycle             an ask that closes a circle of waiting actors
│   │   └── ConversationCycle a run that would wait for a conversation which waits for it
│   ├── MailboxFull          a bounded mailbox refused a message
│   └── UnhandledRequest     the target has no handler for the request
├── StartError: an actor could not be started
│   ├── ChildFailed          a child of a supervisor failed to start
│   ├── AlreadyStarted       the child id or the key is taken by a live actor
│   ├── AlreadyPresent       the child id is taken by a spec without a running actor
│   ├── MaxChildren          the supervisor is full
│   ├── DependencyNotRunning an application requires one that does not run
│   ├── ApplicationFailed    an application failed to start; what the call had started is stopped again
│   └── StartTimeout         starting took longer than allowed
├── ChildNotFound, ChildRunning, ChildRestarting      answers of supervisor management calls
├── ApplicationNotFound, ApplicationNotRunning        answers of calls that manage applications
├── AlreadyRegistered        another live actor holds the key
├── NotRegistered            the calling actor does not hold the key whose value it would change
├── RegistryUnavailable      the registry cannot tell; never the same as "not running"
├── RuntimeClosed            the runtime is stopping or has stopped
├── RuntimeFailed            the root supervisor gave up, so the runtime has stopped by itself
├── PersistenceError
│   ├── StoreUnavailable     the store cannot answer now (locked, read-only, full, closed); try again later
│   ├── StoreCorrupt         the file is not a store, or is damaged
│   ├── FutureVersion        written by a newer Sapwood or newer code; refused unread
│   ├── StaleEpoch           somebody else claimed the agent; the caller must stop
│   ├── SequenceConflict     an append did not continue the journal where the caller thought
│   ├── CodecError           a value that cannot be written or a record that cannot be read
│   ├── RecordCorrupt        a stored record of an agent cannot be read; its bytes are kept in quarantine
│   ├── AgentMissing         nothing is stored of an agent that was to be resumed, read or copied
│   └── AgentExists          something is stored under the id of an agent that was to be new
├── UnknownRoute             no factory is responsible for a conversation; nothing was started
├── ReferenceStoreError: a store of large payloads
│   ├── ReferenceNotFound    it does not have the reference, or not any more
│   ├── ReferenceUnavailable  it cannot answer now; never the same as "not found"
│   ├── ReferenceCorrupt     the stored bytes are not what the id says; they are in quarantine
│   └── ReferenceInUse       somebody holds the reference, so it is not deleted
├── FileError
│   ├── InvalidPath (ValueError), InvalidPattern (ValueError), PathDenied, FileMissing, FileExists,
│   └── VersionConflict, EditMismatch, QuotaExceeded, NotText, ReadOnly, BackendFailed, UnsavedFiles
├── InvalidEnvelope (ValueError)   a field of a message's envelope is missing, unknown or of the wrong kind
├── MessagingError: a message could not be taken, read or delivered
│   ├── MessageTooLarge      larger than its bus accepts
│   ├── SignatureRefused     unsigned, signed with an unknown key, or changed since
│   ├── DecryptionRefused    its key is not there, or its bytes were changed
│   ├── BusUnavailable       the bus does not run, or is being restarted
│   ├── UnknownParticipant   a name that is not registered on the bus
│   ├── Undeliverable        a request reached nobody who could answer it
│   └── SendRefused: NotAuthorized, ContentRefused, MessageExpired, Overloaded, RateLimitExceeded
├── ModelError: the model's provider
│   ├── ModelUnavailable     connection, 5xx, overload, stalled or broken stream; worth a retry
│   ├── RateLimited          429; carries retry_after
│   ├── ModelRefused         4xx: the request itself is wrong; a retry cannot help
│   ├── ModelProtocolError   the provider answered something that is not its protocol
│   └── ScriptExhausted      a scripted model was called more often than its script has steps
├── McpError: a call of an MCP server brought no result
│   ├── McpUnavailable       it cannot be reached now; nothing was done
│   ├── McpCallLost          the connection ended meanwhile; nobody knows whether the call had its effect
│   ├── McpCallTimeout       no answer in time; the server was told to stop
│   └── McpCallRefused       an error of the protocol, or an answer that is no result
├── CallError: a call to another agent brought no answer
│   ├── DeadlineExceeded     the time for the whole call is used up
│   ├── CircuitOpen          the target failed too often of late and was not called
│   ├── BulkheadFull         too many calls to the target run and wait already
│   └── RemoteFailure        the target answered with a failure, told by name
├── EventError: the event bus
│   ├── EventCycle           a handler would wait for the delivery of an event to itself
│   └── EventBusClosed       the bus does not run; nothing was published
├── ConflictError            a value in shared memory is not what the writer expected
├── QueueError: something about a durable queue
│   ├── QueueFull            no room; nothing was stored
│   ├── QueueClosed, QueueFenced      the queue was closed, or opened elsewhere since
│   ├── LeaseLost            a delivery was settled too late; nothing was done
│   ├── MessageIdConflict    a message id used again for another content
│   ├── DeadLetterMissing    there is no such dead letter any more
│   └── ArchiveInvalid       an exported file is damaged or cut short
├── RejectMessage            raised by a handler: the message can never be handled
├── PatternError: a pattern of messaging
│   ├── QuorumNotReached     too few answers that count
│   ├── LeaseUnavailable     all leases of a resource are held
│   ├── ProjectionBehind     a projection has not reached a sequence number in time
│   └── SagaConflict, SagaUnknown     a saga begun with another input, or never
├── StepRefused              raised by a step of a saga: it is known to have had no effect
├── RunFailed                the run that a message led to failed or was cancelled
├── RunInProgress            a message that was not to wait came while another run was open
├── LimitReached             a run has used up one of its limits
├── SubscriptionLagged       a reader of events was cut off because it was too slow
└── ToolError                raised by a tool to tell the model what went wrong
```

A misuse error says what was expected, what was got and what to write instead. Text is built from typed
attributes, which code can read.
"""

from sapwood._public import publish as _publish
from sapwood.errors._actors import ActorDown as ActorDown
from sapwood.errors._actors import ActorError as ActorError
from sapwood.errors._actors import AskCycle as AskCycle
from sapwood.errors._actors import AskTimeout as AskTimeout
from sapwood.errors._actors import MailboxFull as MailboxFull
from sapwood.errors._actors import SelfAsk as SelfAsk
from sapwood.errors._actors import UnhandledRequest as UnhandledRequest
from sapwood.errors._agents import LimitReached as LimitReached
from sapwood.errors._agents import RunInProgress as RunInProgress
from sapwood.errors._applications import ApplicationFailed as ApplicationFailed
from sapwood.errors._applications import ApplicationNotFound as ApplicationNotFound
from sapwood.errors._applications import ApplicationNotRunning as ApplicationNotRunning
from sapwood.errors._applications import DependencyCycle as DependencyCycle
from sapwood.errors._applications import DependencyNotRunning as DependencyNotRunning
from sapwood.errors._applications import InvalidApplication as InvalidApplication
from sapwood.errors._applications import MissingDependency as MissingDependency
from sapwood.errors._conversations import AgentExists as AgentExists
from sapwood.errors._conversations import AgentMissing as AgentMissing
from sapwood.errors._conversations import UnknownRoute as UnknownRoute
from sapwood.errors._envelopes import BusUnavailable as BusUnavailable
from sapwood.errors._envelopes import ContentRefused as ContentRefused
from sapwood.errors._envelopes import DecryptionRefused as DecryptionRefused
from sapwood.errors._envelopes import InvalidEnvelope as InvalidEnvelope
from sapwood.errors._envelopes import MessageExpired as MessageExpired
from sapwood.errors._envelopes import MessageTooLarge as MessageTooLarge
from sapwood.errors._envelopes import MessagingError as MessagingError
from sapwood.errors._envelopes import NotAuthorized as NotAuthorized
from sapwood.errors._envelopes import Overloaded as Overloaded
from sapwood.errors._envelopes import RateLimitExceeded as RateLimitExceeded
from sapwood.errors._envelopes import SendRefused as SendRefused
from sapwood.errors._envelopes import SignatureRefused as SignatureRefused
from sapwood.errors._envelopes import Undeliverable as Undeliverable
from sapwood.errors._envelopes import UnknownParticipant as UnknownParticipant
from sapwood.errors._files import BackendFailed as BackendFailed
from sapwood.errors._files import EditMismatch as EditMismatch
from sapwood.errors._files import FileError as FileError
from sapwood.errors._files import FileExists as FileExists
from sapwood.errors._files import FileMissing as FileMissing
from sapwood.errors._files import InvalidPath as InvalidPath
from sapwood.errors._files import InvalidPattern as InvalidPattern
from sapwood.errors._files import NotText as NotText
from sapwood.errors._files import PathDenied as PathDenied
from sapwood.errors._files import QuotaExceeded as QuotaExceeded
from sapwood.errors._files import ReadOnly as ReadOnly
from sapwood.errors._files import UnsavedFiles as UnsavedFiles
from sapwood.errors._files import VersionConflict as VersionConflict
from sapwood.errors._mcp import McpCallLost as McpCallLost
from sapwood.errors._mcp import McpCallRefused as McpCallRefused
from sapwood.errors._mcp import McpCallTimeout as McpCallTimeout
from sapwood.errors._mcp import McpError as McpError
from sapwood.errors._mcp import McpUnavailable as McpUnavailable
from sapwood.errors._messaging_calls import AlreadySubscribed as AlreadySubscribed
from sapwood.errors._messaging_calls import BulkheadFull as BulkheadFull
from sapwood.errors._messaging_calls import CallError as CallError
from sapwood.errors._messaging_calls import CircuitOpen as CircuitOpen
from sapwood.errors._messaging_calls import ConflictError as ConflictError
from sapwood.errors._messaging_calls import DeadlineExceeded as DeadlineExceeded
from sapwood.errors._messaging_calls import EventBusClosed as EventBusClosed
from sapwood.errors._messaging_calls import EventCycle as EventCycle
from sapwood.errors._messaging_calls import EventError as EventError
from sapwood.errors._messaging_calls import RemoteFailure as RemoteFailure
from sapwood.errors._misuse import DuplicateName as DuplicateName
from sapwood.errors._misuse import InvalidChildSpec as InvalidChildSpec
from sapwood.errors._misuse import InvalidKey as InvalidKey
from sapwood.errors._misuse import InvalidMessage as InvalidMessage
from sapwood.errors._misuse import InvalidOption as InvalidOption
from sapwood.errors._misuse import InvalidTool as InvalidTool
from sapwood.errors._misuse import MissingExtra as MissingExtra
from sapwood.errors._misuse import NotOwner as NotOwner
from sapwood.errors._misuse import NotRunningInside as NotRunningInside
from sapwood.errors._misuse import WrongThread as WrongThread
from sapwood.errors._models import ModelError as ModelError
from sapwood.errors._models import ModelProtocolError as ModelProtocolError
from sapwood.errors._models import ModelRefused as ModelRefused
from sapwood.errors._models import ModelUnavailable as ModelUnavailable
from sapwood.errors._models import RateLimited as RateLimited
from sapwood.errors._models import RunFailed as RunFailed
from sapwood.errors._models import ScriptExhausted as ScriptExhausted
from sapwood.errors._models import SubscriptionLagged as SubscriptionLagged
from sapwood.errors._models import ToolError as ToolError
from sapwood.errors._patterns import LeaseUnavailable as LeaseUnavailable
from sapwood.errors._patterns import PatternError as PatternError
from sapwood.errors._patterns import ProjectionBehind as ProjectionBehind
from sapwood.errors._patterns import QuorumNotReached as QuorumNotReached
from sapwood.errors._patterns import SagaConflict as SagaConflict
from sapwood.errors._patterns import SagaUnknown as SagaUnknown
from sapwood.errors._patterns import StepRefused as StepRefused
from sapwood.errors._persistence import CodecError as CodecError
from sapwood.errors._persistence import FutureVersion as FutureVersion
from sapwood.errors._persistence import PersistenceError as PersistenceError
from sapwood.errors._persistence import RecordCorrupt as RecordCorrupt
from sapwood.errors._persistence import SequenceConflict as SequenceConflict
from sapwood.errors._persistence import StaleEpoch as StaleEpoch
from sapwood.errors._persistence import StoreCorrupt as StoreCorrupt
from sapwood.errors._persistence import StoreUnavailable as StoreUnavailable
from sapwood.errors._queues import ArchiveInvalid as ArchiveInvalid
from sapwood.errors._queues import DeadLetterMissing as DeadLetterMissing
from sapwood.errors._queues import LeaseLost as LeaseLost
from sapwood.errors._queues import MessageIdConflict as MessageIdConflict
from sapwood.errors._queues import QueueClosed as QueueClosed
from sapwood.errors._queues import QueueError as QueueError
from sapwood.errors._queues import QueueFenced as QueueFenced
from sapwood.errors._queues import QueueFull as QueueFull
from sapwood.errors._queues import RejectMessage as RejectMessage
from sapwood.errors._references import ReferenceCorrupt as ReferenceCorrupt
from sapwood.errors._references import ReferenceInUse as ReferenceInUse
from sapwood.errors._references import ReferenceNotFound as ReferenceNotFound
from sapwood.errors._references import ReferenceStoreError as ReferenceStoreError
from sapwood.errors._references import ReferenceUnavailable as ReferenceUnavailable
from sapwood.errors._registry import AlreadyRegistered as AlreadyRegistered
from sapwood.errors._registry import NotRegistered as NotRegistered
from sapwood.errors._registry import RegistryUnavailable as RegistryUnavailable
from sapwood.errors._registry import RuntimeClosed as RuntimeClosed
from sapwood.errors._registry import RuntimeFailed as RuntimeFailed
from sapwood.errors._root import SapwoodError as SapwoodError
from sapwood.errors._starting import AlreadyPresent as AlreadyPresent
from sapwood.errors._starting import AlreadyStarted as AlreadyStarted
from sapwood.errors._starting import ChildFailed as ChildFailed
from sapwood.errors._starting import ChildNotFound as ChildNotFound
from sapwood.errors._starting import ChildRestarting as ChildRestarting
from sapwood.errors._starting import ChildRunning as ChildRunning
from sapwood.errors._starting import MaxChildren as MaxChildren
from sapwood.errors._starting import StartError as StartError
from sapwood.errors._starting import StartTimeout as StartTimeout
from sapwood.errors._waiting import ConversationCycle as ConversationCycle

_publish(globals())
