"""Tools for tests: simulation, chaos and invariants."""

from sapwood._public import publish as _publish
from sapwood.testing._chaos import Chaos as Chaos
from sapwood.testing._chaos import Kill as Kill
from sapwood.testing._chaos import Target as Target
from sapwood.testing._invariants import Invariants as Invariants
from sapwood.testing._invariants import Violation as Violation
from sapwood.testing._persistence_suite import AgentPersistenceSuite as AgentPersistenceSuite
from sapwood.testing._reference_suite import ReferenceStoreSuite as ReferenceStoreSuite
from sapwood.testing._registry_suite import RegistryBackendSuite as RegistryBackendSuite
from sapwood.testing._simulation import simulate as simulate

_publish(globals())
