"""Tiered payloads: small ones travel in the message, large ones are stored once and travel as a reference.

A reference is the SHA-256 of its bytes. It lives as long as somebody holds it or its time lasts; a collection frees
what is neither held nor kept, and can never take what is.
"""

from sapwood._public import publish as _publish
from sapwood.references._collector import collect_regularly as collect_regularly
from sapwood.references._collector import collector as collector
from sapwood.references._config import MemoryConfig as MemoryConfig
from sapwood.references._config import RedisConfig as RedisConfig
from sapwood.references._config import ReferenceConfig as ReferenceConfig
from sapwood.references._config import SQLiteConfig as SQLiteConfig
from sapwood.references._config import load_config as load_config
from sapwood.references._config import parse_config as parse_config
from sapwood.references._courier import Courier as Courier
from sapwood.references._courier import Message as Message
from sapwood.references._data import decode_data as decode_data
from sapwood.references._data import encode_data as encode_data
from sapwood.references._memory import MemoryReferenceStore as MemoryReferenceStore
from sapwood.references._metrics import ReferenceListener as ReferenceListener
from sapwood.references._metrics import ReferenceOperation as ReferenceOperation
from sapwood.references._metrics import metrics_listener as metrics_listener
from sapwood.references._opening import open_reference_store as open_reference_store
from sapwood.references._payload import Payload as Payload
from sapwood.references._payload import pack as pack
from sapwood.references._payload import pack_nowait as pack_nowait
from sapwood.references._payload import unpack as unpack
from sapwood.references._payload import unpack_nowait as unpack_nowait
from sapwood.references._policies import AlwaysReference as AlwaysReference
from sapwood.references._policies import AlwaysValue as AlwaysValue
from sapwood.references._policies import AutoPromote as AutoPromote
from sapwood.references._policies import Policy as Policy
from sapwood.references._policies import PolicyManager as PolicyManager
from sapwood.references._policies import SessionState as SessionState
from sapwood.references._policies import ToolResult as ToolResult
from sapwood.references._policies import WorkflowContext as WorkflowContext
from sapwood.references._protocol import Collected as Collected
from sapwood.references._protocol import ReferenceStatistics as ReferenceStatistics
from sapwood.references._protocol import ReferenceStore as ReferenceStore
from sapwood.references._reader import ReferenceReader as ReferenceReader
from sapwood.references._redis import RedisReferenceStore as RedisReferenceStore
from sapwood.references._redis import open_redis_store as open_redis_store
from sapwood.references._reference import Lease as Lease
from sapwood.references._reference import Reference as Reference
from sapwood.references._reference import ReferenceInfo as ReferenceInfo
from sapwood.references._reference import ReferenceType as ReferenceType
from sapwood.references._retention import Retention as Retention
from sapwood.references._sqlite import SQLiteReferenceStore as SQLiteReferenceStore
from sapwood.references._sqlite_tables import REFERENCES_SCHEMA as REFERENCES_SCHEMA

_publish(globals())
