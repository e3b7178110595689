"""Durable state: a strict codec for records, a store in one SQLite file, and journals of agents with epochs.

Journal first: an event is durable before its effect is visible, and state is the fold of a snapshot and the events
after it. Whoever claims an agent fences off its former owner.
"""

from sapwood._public import publish as _publish
from sapwood.persistence._agent_persistence import AgentPersistence as AgentPersistence
from sapwood.persistence._agent_persistence import LoadOutcome as LoadOutcome
from sapwood.persistence._agent_persistence import Missing as Missing
from sapwood.persistence._agent_persistence import NumberedLine as NumberedLine
from sapwood.persistence._agent_persistence import Stored as Stored
from sapwood.persistence._codec import decode as decode
from sapwood.persistence._codec import describe as describe
from sapwood.persistence._codec import encode as encode
from sapwood.persistence._codec import upcast as upcast
from sapwood.persistence._engine import Store as Store
from sapwood.persistence._engine import open_store as open_store
from sapwood.persistence._inspection import QuarantineRow as QuarantineRow
from sapwood.persistence._inspection import RecordSummary as RecordSummary
from sapwood.persistence._inspection import StoreSummary as StoreSummary
from sapwood.persistence._inspection import read_summary as read_summary
from sapwood.persistence._journal import Journal as Journal
from sapwood.persistence._migrations import MigrationSet as MigrationSet
from sapwood.persistence._protocols import AgentRow as AgentRow
from sapwood.persistence._protocols import Claim as Claim
from sapwood.persistence._protocols import Entry as Entry
from sapwood.persistence._protocols import JournalStore as JournalStore
from sapwood.persistence._protocols import StoreEngine as StoreEngine
from sapwood.persistence._protocols import StoreStatistics as StoreStatistics
from sapwood.persistence._snapshots import SnapshotPolicy as SnapshotPolicy

_publish(globals())
