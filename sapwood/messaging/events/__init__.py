"""The event bus: typed topics with prefixes, priorities, isolated handlers, history and dead letters."""

from sapwood._public import publish as _publish
from sapwood.messaging.events._bus import EventBus as EventBus
from sapwood.messaging.events._bus import Subscription as Subscription
from sapwood.messaging.events._delivery import Handler as Handler
from sapwood.messaging.events._event import AgentEvent as AgentEvent
from sapwood.messaging.events._event import EventPriority as EventPriority
from sapwood.messaging.events._opening import open_event_bus as open_event_bus
from sapwood.messaging.events._options import EventBusOptions as EventBusOptions
from sapwood.messaging.events._report import EventDeadLetter as EventDeadLetter
from sapwood.messaging.events._report import EventStatistics as EventStatistics
from sapwood.messaging.events._report import HandlerResult as HandlerResult
from sapwood.messaging.events._report import PublishReport as PublishReport
from sapwood.messaging.events._runner import EventObserver as EventObserver

_publish(globals())
