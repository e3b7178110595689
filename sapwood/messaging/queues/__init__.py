"""Durable queues: a message log, competing receivers with leases, dead letters, and pools of consumers.

A message is durable when `append` returns. What a crash may do to it is one table, `GUARANTEES`.
"""

from sapwood._public import publish as _publish
from sapwood.messaging.queues._appending import Appended as Appended
from sapwood.messaging.queues._archive import back_up as back_up
from sapwood.messaging.queues._consumer import Consumer as Consumer
from sapwood.messaging.queues._consumer import Handled as Handled
from sapwood.messaging.queues._consumer import Handler as Handler
from sapwood.messaging.queues._consumer import Retire as Retire
from sapwood.messaging.queues._dead_letters import DeadLetters as DeadLetters
from sapwood.messaging.queues._dead_rows import DeadLetter as DeadLetter
from sapwood.messaging.queues._delivery import Delivery as Delivery
from sapwood.messaging.queues._delivery import Effect as Effect
from sapwood.messaging.queues._events import AppendFailed as AppendFailed
from sapwood.messaging.queues._events import Buried as Buried
from sapwood.messaging.queues._events import DeadLetterAlert as DeadLetterAlert
from sapwood.messaging.queues._events import QueueEvent as QueueEvent
from sapwood.messaging.queues._events import QueueListener as QueueListener
from sapwood.messaging.queues._events import SenderNotice as SenderNotice
from sapwood.messaging.queues._guarantees import GUARANTEES as GUARANTEES
from sapwood.messaging.queues._guarantees import CrashPoint as CrashPoint
from sapwood.messaging.queues._guarantees import Seen as Seen
from sapwood.messaging.queues._log import LogReader as LogReader
from sapwood.messaging.queues._log import MessageLog as MessageLog
from sapwood.messaging.queues._memory import open_memory_store as open_memory_store
from sapwood.messaging.queues._messages import Message as Message
from sapwood.messaging.queues._messages import StoredMessage as StoredMessage
from sapwood.messaging.queues._options import ORDERS as ORDERS
from sapwood.messaging.queues._options import DeliveryMode as DeliveryMode
from sapwood.messaging.queues._options import Ordering as Ordering
from sapwood.messaging.queues._options import Overflow as Overflow
from sapwood.messaging.queues._options import QueueOptions as QueueOptions
from sapwood.messaging.queues._pool import PoolOptions as PoolOptions
from sapwood.messaging.queues._pool import WorkerPool as WorkerPool
from sapwood.messaging.queues._queue import Queue as Queue
from sapwood.messaging.queues._queue import open_queue as open_queue
from sapwood.messaging.queues._reasons import REASONS as REASONS
from sapwood.messaging.queues._reasons import DeadReason as DeadReason
from sapwood.messaging.queues._reasons import ReasonKind as ReasonKind
from sapwood.messaging.queues._schema import QUEUES_SCHEMA as QUEUES_SCHEMA
from sapwood.messaging.queues._statistics import QueueStatistics as QueueStatistics

_publish(globals())
