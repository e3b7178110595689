"""Calls between agents: request and answer, with retries, deadlines, circuit breakers and typed failures."""

from sapwood._public import publish as _publish
from sapwood.messaging.rpc._breaker import BreakerChanged as BreakerChanged
from sapwood.messaging.rpc._breaker import BreakerPolicy as BreakerPolicy
from sapwood.messaging.rpc._breaker import BreakerState as BreakerState
from sapwood.messaging.rpc._breaker import BreakerStatistics as BreakerStatistics
from sapwood.messaging.rpc._breaker import CircuitBreaker as CircuitBreaker
from sapwood.messaging.rpc._breaker import Passage as Passage
from sapwood.messaging.rpc._bulkhead import Bulkhead as Bulkhead
from sapwood.messaging.rpc._bulkhead import BulkheadPolicy as BulkheadPolicy
from sapwood.messaging.rpc._client import Resolver as Resolver
from sapwood.messaging.rpc._client import RpcClient as RpcClient
from sapwood.messaging.rpc._deadlines import DEADLINE as DEADLINE
from sapwood.messaging.rpc._deadlines import deadline as deadline
from sapwood.messaging.rpc._deadlines import remaining as remaining
from sapwood.messaging.rpc._events import AttemptFailed as AttemptFailed
from sapwood.messaging.rpc._events import CallEnded as CallEnded
from sapwood.messaging.rpc._events import CallEvent as CallEvent
from sapwood.messaging.rpc._events import CallStatistics as CallStatistics
from sapwood.messaging.rpc._events import HedgeStarted as HedgeStarted
from sapwood.messaging.rpc._events import Observer as Observer
from sapwood.messaging.rpc._failures import FailureRecord as FailureRecord
from sapwood.messaging.rpc._failures import describe_failure as describe_failure
from sapwood.messaging.rpc._failures import failure as failure
from sapwood.messaging.rpc._hedging import Hedge as Hedge
from sapwood.messaging.rpc._hedging import idempotent as idempotent
from sapwood.messaging.rpc._outcomes import VERDICTS as VERDICTS
from sapwood.messaging.rpc._outcomes import CallOutcome as CallOutcome
from sapwood.messaging.rpc._outcomes import Case as Case
from sapwood.messaging.rpc._outcomes import Verdict as Verdict
from sapwood.messaging.rpc._outcomes import case_of as case_of
from sapwood.messaging.rpc._retry import NO_RETRY as NO_RETRY
from sapwood.messaging.rpc._retry import Retry as Retry

_publish(globals())
