"""The bus: named participants, every way to send to them, and the dead letters of what did not arrive."""

from sapwood._public import publish as _publish
from sapwood.messaging.bus._bus import Bus as Bus
from sapwood.messaging.bus._bus import bus_child as bus_child
from sapwood.messaging.bus._by_kind import ByKind as ByKind
from sapwood.messaging.bus._clerk import DeadLetterAlert as DeadLetterAlert
from sapwood.messaging.bus._dead_letter_store import DEAD_LETTERS_SCHEMA as DEAD_LETTERS_SCHEMA
from sapwood.messaging.bus._dead_letter_store import StoredDeadLetters as StoredDeadLetters
from sapwood.messaging.bus._dead_letters import NOTICE as NOTICE
from sapwood.messaging.bus._dead_letters import TRANSIENT as TRANSIENT
from sapwood.messaging.bus._dead_letters import DeadLetter as DeadLetter
from sapwood.messaging.bus._dead_letters import DeadLetterOffice as DeadLetterOffice
from sapwood.messaging.bus._dead_letters import DeadLetterStore as DeadLetterStore
from sapwood.messaging.bus._dead_letters import DeadReason as DeadReason
from sapwood.messaging.bus._durable_hosts import current_delivery as current_delivery
from sapwood.messaging.bus._exchange import Answer as Answer
from sapwood.messaging.bus._history import AuditRecord as AuditRecord
from sapwood.messaging.bus._metrics import BusMetrics as BusMetrics
from sapwood.messaging.bus._metrics import Latency as Latency
from sapwood.messaging.bus._metrics import PairCounters as PairCounters
from sapwood.messaging.bus._options import BatchOptions as BatchOptions
from sapwood.messaging.bus._options import BusOptions as BusOptions
from sapwood.messaging.bus._options import HandlerOptions as HandlerOptions
from sapwood.messaging.bus._options import LargePayloads as LargePayloads
from sapwood.messaging.bus._participant import Participant as Participant
from sapwood.messaging.bus._rates import RateLimit as RateLimit
from sapwood.messaging.bus._reports import Delivery as Delivery
from sapwood.messaging.bus._reports import DeliveryReport as DeliveryReport
from sapwood.messaging.bus._reports import Operation as Operation
from sapwood.messaging.bus._routes import Filter as Filter
from sapwood.messaging.bus._routes import Predicate as Predicate
from sapwood.messaging.bus._routes import Route as Route
from sapwood.messaging.bus._routes import header_is as header_is
from sapwood.messaging.bus._routes import kind_is as kind_is
from sapwood.messaging.bus._routes import payload_is as payload_is
from sapwood.messaging.bus._topics import matches as matches

_publish(globals())
