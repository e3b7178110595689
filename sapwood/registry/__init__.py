"""The registry: typed keys, and a lookup with three answers."""

from sapwood.registry._keys import Key as Key
from sapwood.registry._lookup import Lookup as Lookup
from sapwood.registry._lookup import NotRunning as NotRunning
from sapwood.registry._lookup import Running as Running
from sapwood.registry._lookup import Unavailable as Unavailable
from sapwood.registry._lookup import UnavailableReason as UnavailableReason
from sapwood.registry._partition import Partition as Partition
from sapwood.registry._partition import RegistryWatcher as RegistryWatcher
from sapwood.registry._partition import registry_children as registry_children
from sapwood.registry._registry import PartitionState as PartitionState
from sapwood.registry._registry import Registry as Registry
from sapwood.registry._registry import RegistryStatistics as RegistryStatistics
