"""Monitoring: figures of actors, buses and queues, alert rules over them, and what shows them to people and tools."""

from sapwood._public import publish as _publish
from sapwood.messaging.monitoring._alerts import Alert as Alert
from sapwood.messaging.monitoring._alerts import AlertChange as AlertChange
from sapwood.messaging.monitoring._alerts import AlertState as AlertState
from sapwood.messaging.monitoring._metrics import METRICS as METRICS
from sapwood.messaging.monitoring._metrics import Metric as Metric
from sapwood.messaging.monitoring._metrics import Reading as Reading
from sapwood.messaging.monitoring._monitor import Monitor as Monitor
from sapwood.messaging.monitoring._monitor import Watchable as Watchable
from sapwood.messaging.monitoring._notifiers import Notifier as Notifier
from sapwood.messaging.monitoring._notifiers import log_alert as log_alert
from sapwood.messaging.monitoring._prometheus import CONTENT_TYPE as CONTENT_TYPE
from sapwood.messaging.monitoring._prometheus import prometheus_text as prometheus_text
from sapwood.messaging.monitoring._published import MONITORING_SCHEMA as MONITORING_SCHEMA
from sapwood.messaging.monitoring._rules import BUILT_IN_RULES as BUILT_IN_RULES
from sapwood.messaging.monitoring._rules import Rule as Rule
from sapwood.messaging.monitoring._rules import Severity as Severity
from sapwood.messaging.monitoring._snapshot import BusyActor as BusyActor
from sapwood.messaging.monitoring._snapshot import Snapshot as Snapshot
from sapwood.messaging.monitoring._snapshot import Unreadable as Unreadable

_publish(globals())
