"""Patterns built on actors, queues and the store: event sourcing, read models, sagas, votes, leases."""

from sapwood._public import publish as _publish
from sapwood.messaging.patterns._event_sourced import EventSourced as EventSourced
from sapwood.messaging.patterns._fold import FoldedLog as FoldedLog
from sapwood.messaging.patterns._fold import Snapshots as Snapshots
from sapwood.messaging.patterns._gather import Gathered as Gathered
from sapwood.messaging.patterns._gather import first_valid as first_valid
from sapwood.messaging.patterns._gather import gather_partial as gather_partial
from sapwood.messaging.patterns._gather import majority as majority
from sapwood.messaging.patterns._gather import quorum as quorum
from sapwood.messaging.patterns._gather import scatter as scatter
from sapwood.messaging.patterns._leases import Acquire as Acquire
from sapwood.messaging.patterns._leases import Holders as Holders
from sapwood.messaging.patterns._leases import Lease as Lease
from sapwood.messaging.patterns._leases import LeaseKeeper as LeaseKeeper
from sapwood.messaging.patterns._leases import Release as Release
from sapwood.messaging.patterns._leases import held as held
from sapwood.messaging.patterns._projection import Projection as Projection
from sapwood.messaging.patterns._projection import Reach as Reach
from sapwood.messaging.patterns._projection import Rebuild as Rebuild
from sapwood.messaging.patterns._saga_steps import Saga as Saga
from sapwood.messaging.patterns._saga_steps import SagaPhase as SagaPhase
from sapwood.messaging.patterns._saga_steps import SagaReport as SagaReport
from sapwood.messaging.patterns._saga_steps import Step as Step
from sapwood.messaging.patterns._saga_steps import StepContext as StepContext
from sapwood.messaging.patterns._sagas import Begin as Begin
from sapwood.messaging.patterns._sagas import Look as Look
from sapwood.messaging.patterns._sagas import Outcome as Outcome
from sapwood.messaging.patterns._sagas import Retry as Retry
from sapwood.messaging.patterns._sagas import SagaListener as SagaListener
from sapwood.messaging.patterns._sagas import SagaOptions as SagaOptions
from sapwood.messaging.patterns._sagas import SagaRunner as SagaRunner
from sapwood.messaging.patterns._sagas import Sagas as Sagas
from sapwood.messaging.patterns._schema import PATTERNS_SCHEMA as PATTERNS_SCHEMA

_publish(globals())
