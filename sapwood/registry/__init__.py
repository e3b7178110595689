"""The registry: typed keys, and a lookup with three answers; and directories, in which actors register themselves."""

from sapwood._public import publish as _publish
from sapwood.registry._backend import BackendStatistics as BackendStatistics
from sapwood.registry._backend import PartitionState as PartitionState
from sapwood.registry._backend import RegistryBackend as RegistryBackend
from sapwood.registry._directory import Directory as Directory
from sapwood.registry._duplicate_directory import DuplicateDirectory as DuplicateDirectory
from sapwood.registry._keys import Key as Key
from sapwood.registry._keys import check_key as check_key
from sapwood.registry._local import LocalBackend as LocalBackend
from sapwood.registry._lookup import Lookup as Lookup
from sapwood.registry._lookup import NotRunning as NotRunning
from sapwood.registry._lookup import Running as Running
from sapwood.registry._lookup import Unavailable as Unavailable
from sapwood.registry._lookup import UnavailableReason as UnavailableReason
from sapwood.registry._partition import Partition as Partition
from sapwood.registry._partition import RegistryWatcher as RegistryWatcher
from sapwood.registry._registrations import Registered as Registered
from sapwood.registry._registrations import Registration as Registration
from sapwood.registry._registrations import Unregistered as Unregistered
from sapwood.registry._registry import Registry as Registry
from sapwood.registry._registry import RegistryStatistics as RegistryStatistics
from sapwood.registry._unique_directory import UniqueDirectory as UniqueDirectory

_publish(globals())
