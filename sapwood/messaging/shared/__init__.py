"""Shared memory: versioned values that agents of one process, or of several over one file, read and write."""

from sapwood._public import publish as _publish
from sapwood.messaging.shared._changes import Change as Change
from sapwood.messaging.shared._changes import Deleted as Deleted
from sapwood.messaging.shared._changes import Missed as Missed
from sapwood.messaging.shared._changes import ReadRecord as ReadRecord
from sapwood.messaging.shared._changes import SharedStatistics as SharedStatistics
from sapwood.messaging.shared._changes import WriteRecord as WriteRecord
from sapwood.messaging.shared._changes import Written as Written
from sapwood.messaging.shared._durable import DurableSharedMemory as DurableSharedMemory
from sapwood.messaging.shared._durable import DurableWatch as DurableWatch
from sapwood.messaging.shared._memory import SharedMemory as SharedMemory
from sapwood.messaging.shared._rows import SHARED_SCHEMA as SHARED_SCHEMA
from sapwood.messaging.shared._strategies import ConflictStrategy as ConflictStrategy
from sapwood.messaging.shared._values import ABSENT as ABSENT
from sapwood.messaging.shared._values import ANY as ANY
from sapwood.messaging.shared._values import VersionedValue as VersionedValue
from sapwood.messaging.shared._values import Write as Write
from sapwood.messaging.shared._watch import Watch as Watch

_publish(globals())
