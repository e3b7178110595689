"""Every exception that Sapwood raises, in one tree.

```
SapwoodError
├── misuse: the call was wrong; mend the calling code (each also derives from the fitting builtin)
│   ├── InvalidOption        (ValueError)    an option that does not exist, or a value out of its range
│   ├── InvalidMessage       (TypeError)     something that is not a message was sent, or a declaration is wrong
│   ├── InvalidChildSpec     (ValueError)    a child spec or a supervisor option that cannot work
│   ├── InvalidKey           (TypeError)     a registry key that is no typed tuple
│   ├── InvalidTool          (TypeError)     a function that cannot be offered to a model
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
│   ├── MailboxFull          a bounded mailbox refused a message
│   └── UnhandledRequest     the target has no handler for the request
├── StartError: an actor could not be started
│   ├── ChildFailed          a child of a supervisor failed to start
│   ├── AlreadyStarted       the child id or the key is taken by a live actor
│   ├── AlreadyPresent       the child id is taken by a spec without a running actor
│   ├── MaxChildren          the supervisor is full
│   └── StartTimeout         starting took longer than allowed
├── ChildNotFound, ChildRunning, ChildRestarting      answers of supervisor management calls
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
│   └── RecordCorrupt        a stored record of an agent cannot be read; its bytes are kept in quarantine
├── FileError
│   ├── InvalidPath (ValueError), InvalidPattern (ValueError), PathDenied, FileMissing, FileExists,
│   └── VersionConflict, EditMismatch, QuotaExceeded, NotText, ReadOnly, BackendFailed
├── ModelError: the model's provider
│   ├── ModelUnavailable     connection, 5xx, overload, stalled or broken stream; worth a retry
│   ├── RateLimited          429; carries retry_after
│   ├── ModelRefused         4xx: the request itself is wrong; a retry cannot help
│   ├── ModelProtocolError   the provider answered something that is not its protocol
│   └── ScriptExhausted      a scripted model was called more often than its script has steps
├── RunFailed                the run that a message led to failed or was cancelled
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
from sapwood.errors._files import VersionConflict as VersionConflict
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
from sapwood.errors._persistence import CodecError as CodecError
from sapwood.errors._persistence import FutureVersion as FutureVersion
from sapwood.errors._persistence import PersistenceError as PersistenceError
from sapwood.errors._persistence import RecordCorrupt as RecordCorrupt
from sapwood.errors._persistence import SequenceConflict as SequenceConflict
from sapwood.errors._persistence import StaleEpoch as StaleEpoch
from sapwood.errors._persistence import StoreCorrupt as StoreCorrupt
from sapwood.errors._persistence import StoreUnavailable as StoreUnavailable
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

_publish(globals())
