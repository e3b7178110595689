"""Messages between agents: one envelope for all of them, and the bus that carries it."""

from sapwood._public import publish as _publish
from sapwood.messaging import bus as bus
from sapwood.messaging import envelope as envelope
from sapwood.messaging.bus import Bus as Bus
from sapwood.messaging.bus import BusOptions as BusOptions
from sapwood.messaging.bus import DeadLetter as DeadLetter
from sapwood.messaging.bus import DeliveryReport as DeliveryReport
from sapwood.messaging.bus import HandlerOptions as HandlerOptions
from sapwood.messaging.bus import Participant as Participant
from sapwood.messaging.bus import bus_child as bus_child
from sapwood.messaging.envelope import Envelope as Envelope
from sapwood.messaging.envelope import make_envelope as make_envelope

_publish(globals())
