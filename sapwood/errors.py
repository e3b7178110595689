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
├── SubscriptionLagged       a reader of events was cut off because it was too slow
└── ToolError                raised by a tool to tell the model what went wrong
```

A misuse error says what was expected, what was got and what to write instead. Text is built from typed
attributes, which code can read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sapwood.actors import ExitReason


class SapwoodError(Exception):
    """Root of every exception that Sapwood raises."""


# --- misuse ---------------------------------------------------------------------------------------


class InvalidOption(SapwoodError, ValueError):
    """An option does not exist, or its value is out of range."""


class InvalidMessage(SapwoodError, TypeError):
    """Something that is not a message was sent, or a message or handler is declared wrongly."""


class InvalidChildSpec(SapwoodError, ValueError):
    """A child spec or a supervisor option cannot work; `field` names the offending part."""

    def __init__(self, field: str, expected: str, got: object) -> None:
        super().__init__(f"child spec field {field!r}: expected {expected}; got {got!r}")
        self.field = field
        self.expected = expected
        self.got = got


class InvalidKey(SapwoodError, TypeError):
    """A registry key is no tuple of a kind and plain parts."""

    def __init__(self, key: object, expected: str) -> None:
        super().__init__(f"registry key: expected {expected}; got {key!r}")
        self.key = key
        self.expected = expected


class InvalidTool(SapwoodError, TypeError):
    """A function cannot be offered to a model as a tool."""


class DuplicateName(SapwoodError, ValueError):
    """A name that must be unique was used twice."""

    def __init__(self, kind: str, name: str, holder: object) -> None:
        super().__init__(f"{kind} {name!r} is already taken by {holder!r}; choose another name")
        self.kind = kind
        self.name = name


class MissingExtra(SapwoodError, ImportError):
    """A package that an optional part of Sapwood needs is not installed; `extra` names what to install."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs the package {package!r}: pip install 'sapwood[{extra}]'")
        self.what = what
        self.package = package
        self.extra = extra


class WrongThread(SapwoodError, RuntimeError):
    """A call was made outside the thread that runs the runtime; nothing was done."""


class NotRunningInside(SapwoodError, RuntimeError):
    """An attribute that only a started actor has was read before the runtime started it."""


# --- actors ---------------------------------------------------------------------------------------


class ActorError(SapwoodError):
    """Something about another actor."""


class ActorDown(ActorError):
    """The target is dead, or died before it answered.

    Attributes:
        target: How the target calls itself.
        reason: Its exit reason, or None if it was never known (no such actor).
    """

    def __init__(self, target: str, reason: ExitReason | None = None) -> None:
        why = "no such actor" if reason is None else str(reason)
        super().__init__(f"{target} is down: {why}")
        self.target = target
        self.reason = reason


class AskTimeout(ActorError):
    """No answer came in time. The request was not taken back: the target may still carry it out (OTP I06)."""

    def __init__(self, target: str, request: str, timeout: float) -> None:
        super().__init__(f"{target} did not answer {request} within {timeout:g} s; it may still carry it out")
        self.target = target
        self.request = request
        self.timeout = timeout


class SelfAsk(ActorError):
    """An actor asked itself and would wait for ever; use tell, or call the method (OTP I10)."""

    def __init__(self, target: str, request: str) -> None:
        super().__init__(f"{target} asked itself {request} and would never answer; tell it, or call the method")
        self.target = target
        self.request = request


class AskCycle(ActorError):
    """An ask that closes a circle of actors, each waiting for the next; `chain` names them in order."""

    def __init__(self, chain: Sequence[str]) -> None:
        super().__init__("ask cycle: " + " -> ".join(chain) + "; make one of these a tell")
        self.chain = tuple(chain)


class MailboxFull(ActorError):
    """A bounded mailbox with `overflow="reject"` refused a message; nothing was queued."""

    def __init__(self, target: str, capacity: int) -> None:
        super().__init__(f"mailbox of {target} holds its capacity of {capacity} messages; send later, or await send()")
        self.target = target
        self.capacity = capacity


class UnhandledRequest(ActorError):
    """The target has no handler for a request; the target crashes with this (OTP I25)."""


# --- starting and managing ------------------------------------------------------------------------


class StartError(SapwoodError):
    """An actor could not be started; whatever it had begun is undone."""


class ChildFailed(StartError):
    """A child failed to start. `reason` is the child's own exit reason; nested supervisors nest (OTP A02, A15)."""

    def __init__(self, child: str, reason: ExitReason) -> None:
        super().__init__(f"child {child} failed to start: {reason}")
        self.child = child
        self.reason = reason


class AlreadyStarted(StartError):
    """The child id or the key belongs to a live actor; `ref` is that actor (OTP G02, K01)."""

    def __init__(self, name: str, ref: Any) -> None:
        super().__init__(f"{name} is already started: {ref!r}")
        self.name = name
        self.ref = ref


class AlreadyPresent(StartError):
    """The child id belongs to a spec without a running actor; restart_child or delete_child it (OTP G03)."""

    def __init__(self, child: str) -> None:
        super().__init__(f"child {child} has a spec but no running actor; use restart_child or delete_child")
        self.child = child


class MaxChildren(StartError):
    """The dynamic supervisor is full; the start function was not called (OTP H02)."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the supervisor holds its limit of {limit} children")
        self.limit = limit


class StartTimeout(StartError):
    """Starting took longer than allowed; the half-started actor was killed (OTP I05)."""

    def __init__(self, child: str, timeout: float) -> None:
        super().__init__(f"{child} did not finish starting within {timeout:g} s")
        self.child = child
        self.timeout = timeout


class ChildNotFound(SapwoodError, LookupError):
    """The supervisor has no such child (OTP G06, H07)."""

    def __init__(self, child: str) -> None:
        super().__init__(f"the supervisor has no child {child}")
        self.child = child


class ChildRunning(SapwoodError):
    """The operation needs a child that is not running; terminate_child it first (OTP G09, G11)."""

    def __init__(self, child: str) -> None:
        super().__init__(f"child {child} is running; use terminate_child first")
        self.child = child


class ChildRestarting(SapwoodError):
    """The operation needs a child at rest, and this one is being restarted (OTP G09, G11)."""

    def __init__(self, child: str) -> None:
        super().__init__(f"child {child} is being restarted; terminate_child cancels that")
        self.child = child


# --- registry and runtime -------------------------------------------------------------------------


class AlreadyRegistered(SapwoodError):
    """Another live actor holds the key; `holder` is its ref (OTP K04)."""

    def __init__(self, key: object, holder: Any) -> None:
        super().__init__(f"key {key!r} is held by {holder!r}")
        self.key = key
        self.holder = holder


class RegistryUnavailable(SapwoodError):
    """The registry cannot say whether an actor runs. This is not "not running": start nothing, answer 503.

    It is deliberately no LookupError, so that code which treats "nothing there" as an answer cannot catch it.

    Attributes:
        operation: What was attempted.
        reason: `starting`, `draining`, `registry_down`, `recovering` or `unreachable`.
        retry_after: Seconds after which asking again makes sense.
    """

    def __init__(self, operation: str, reason: str, retry_after: float = 1.0) -> None:
        super().__init__(f"{operation}: the registry cannot tell ({reason}); start nothing and ask again in {retry_after:g} s")
        self.operation = operation
        self.reason = reason
        self.retry_after = retry_after


class RuntimeClosed(SapwoodError):
    """The runtime is stopping or has stopped; nothing was done."""


class RuntimeFailed(SapwoodError):
    """The root supervisor gave up: restarting did not help, and everything has been stopped.

    Attributes:
        reason: Exit reason of the root supervisor.
    """

    def __init__(self, reason: ExitReason) -> None:
        super().__init__(f"the runtime has stopped by itself: {reason}")
        self.reason = reason


# --- persistence ----------------------------------------------------------------------------------


class PersistenceError(SapwoodError):
    """Something about the store. A key or agent that is merely absent is an answer, not one of these."""


class StoreUnavailable(PersistenceError):
    """The store cannot answer now: locked, read-only, full, closed. Must never be read as "nothing stored"."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"store {store}: {reason}")
        self.store = store
        self.reason = reason


class StoreCorrupt(PersistenceError):
    """The file is not a Sapwood store, or SQLite finds it damaged; nothing was changed."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"store {store} cannot be read: {reason}")
        self.store = store
        self.reason = reason


class FutureVersion(PersistenceError):
    """A record or schema is newer than this code; it is refused and left as it is."""

    def __init__(self, name: str, found: int, known: int) -> None:
        super().__init__(f"{name} has version {found}; this code knows up to {known}: upgrade before opening it")
        self.name = name
        self.found = found
        self.known = known


class StaleEpoch(PersistenceError):
    """Another server claimed the agent since; the append was refused and its sender must stop itself.

    Attributes:
        agent_id: The agent.
        held: The epoch the caller holds.
        current: The epoch in the store.
    """

    def __init__(self, agent_id: str, held: int, current: int) -> None:
        super().__init__(f"agent {agent_id!r} was claimed with epoch {current} after this server's {held}; stop this server")
        self.agent_id = agent_id
        self.held = held
        self.current = current


class SequenceConflict(PersistenceError):
    """An append expected the journal to end elsewhere; nothing was written."""

    def __init__(self, agent_id: str, expected: int, found: int) -> None:
        super().__init__(f"journal of {agent_id!r} ends at {found}, not at {expected}; reload before appending")
        self.agent_id = agent_id
        self.expected = expected
        self.found = found


class CodecError(PersistenceError):
    """A value cannot be written or a record cannot be read; `path` says where, as in `state.messages[3].meta.x`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class RecordCorrupt(PersistenceError):
    """A stored record of an agent cannot be read, or is gone; nothing was changed and the agent may not start afresh.

    The bytes were copied to the table `quarantine`, with the reason; the record itself stays where it was.

    Attributes:
        agent_id: The agent.
        seq: Sequence number of the event, or of the snapshot.
        source: `journal` or `snapshots`: the table.
        reason: What is wrong with it.
    """

    def __init__(self, agent_id: str, seq: int, source: str, reason: str) -> None:
        super().__init__(f"record {seq} of {agent_id!r} in {source}: {reason}; mend or remove it before the agent can run")
        self.agent_id = agent_id
        self.seq = seq
        self.source = source
        self.reason = reason


# --- files ----------------------------------------------------------------------------------------


class FileError(SapwoodError):
    """Something about a file of a scoped filesystem; `path` is the path as it was given."""

    def __init__(self, path: str, problem: str) -> None:
        shown = path if len(path) <= 200 else path[:200] + "..."
        super().__init__(f"{shown!r}: {problem}")
        self.path = path
        self.problem = problem


class InvalidPath(FileError, ValueError):
    """The path could leave its root, or is not a usable name."""


class InvalidPattern(FileError, ValueError):
    """A glob or a search pattern cannot be used; `path` holds the pattern."""


class PathDenied(FileError):
    """A deny rule of the filesystem forbids this path to every tool; `rule` is the rule."""

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(path, f"is denied by the rule {rule!r}")
        self.rule = rule


class FileMissing(FileError):
    """There is no such file."""


class FileExists(FileError):
    """There is such a file already and the call asked for a new one."""


class VersionConflict(FileError):
    """The file changed since the version the caller read; `found` is 0 if it is not there any more."""

    def __init__(self, path: str, expected: int, found: int) -> None:
        state = f"is at version {found}" if found else "does not exist"
        super().__init__(path, f"{state}, but version {expected} was expected; read it again before changing it")
        self.expected = expected
        self.found = found


class EditMismatch(FileError):
    """The text to replace occurs not at all, or more often than once; nothing was changed.

    Attributes:
        count: How often it occurs.
        lines: Lines where the first occurrences start, from 1; if it does not occur, lines that look alike.
    """

    def __init__(self, path: str, count: int, lines: Sequence[int]) -> None:
        where = ", ".join(str(line) for line in lines)
        if count:
            problem = f"the text to replace occurs {count} times (at line {where}); include more of its surroundings"
        elif lines:
            problem = f"the text to replace does not occur; line {where} differs only in blanks or case: copy it exactly"
        else:
            problem = "the text to replace does not occur; read the file again and copy the text exactly"
        super().__init__(path, problem)
        self.count = count
        self.lines = tuple(lines)


class QuotaExceeded(FileError):
    """The write would exceed a size or count limit; nothing was changed."""


class NotText(FileError):
    """The file holds bytes that are not UTF-8 text."""


class ReadOnly(FileError):
    """The filesystem, or this part of it, refuses writes."""


class BackendFailed(FileError):
    """The backend could not carry out the operation (disk full, permission, I/O error)."""


# --- models and tools -----------------------------------------------------------------------------


class ModelError(SapwoodError):
    """The model's provider failed; `retryable` says whether the same request may succeed later."""

    retryable = False

    def __init__(self, provider: str, problem: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(f"{provider}: {problem}" + (f" (HTTP {status})" if status is not None else ""))
        self.provider = provider
        self.problem = problem
        self.status = status
        self.retry_after = retry_after


class ModelUnavailable(ModelError):
    """Connection lost, 5xx, overloaded, or a stalled or broken stream."""

    retryable = True


class RateLimited(ModelError):
    """The provider asked to slow down; `retry_after` is in seconds, if it said."""

    retryable = True


class ModelRefused(ModelError):
    """The provider refused the request itself: wrong key, model name, size or content."""


class ModelProtocolError(ModelError):
    """The provider answered something that is not its protocol, such as malformed JSON."""

    retryable = True


class ScriptExhausted(ModelError):
    """A scripted model was called once more than its script has steps; `script` names the script, if it has a name."""

    def __init__(self, provider: str, script: str, steps: int) -> None:
        which = f"the script {script}" if script else "the script"
        super().__init__(provider, f"{which} has {steps} steps and was called once more: add a step, or `then=`")
        self.script = script
        self.steps = steps


class SubscriptionLagged(SapwoodError):
    """A reader of events was so slow that it was cut off; subscribe again to go on.

    Attributes:
        agent_id: The agent.
        seq: Number of the agent's last event.
    """

    def __init__(self, agent_id: str, seq: int) -> None:
        super().__init__(f"this reader of the events of {agent_id!r} fell too far behind (at {seq}); subscribe again")
        self.agent_id = agent_id
        self.seq = seq


class ToolError(SapwoodError):
    """Raised by a tool to tell the model what went wrong; the text goes to the model as an error result."""
