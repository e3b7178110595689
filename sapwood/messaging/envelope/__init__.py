"""The envelope that every message travels in: its fields, its kinds and priorities, its written forms, its seals."""

from sapwood._public import publish as _publish
from sapwood.messaging.envelope._encryption import Encrypted as Encrypted
from sapwood.messaging.envelope._encryption import PayloadCipher as PayloadCipher
from sapwood.messaging.envelope._envelope import Envelope as Envelope
from sapwood.messaging.envelope._envelope import Header as Header
from sapwood.messaging.envelope._envelope import make_envelope as make_envelope
from sapwood.messaging.envelope._envelope import now_ns as now_ns
from sapwood.messaging.envelope._forms import FORMAT_VERSION as FORMAT_VERSION
from sapwood.messaging.envelope._forms import SIZE_GUIDANCE as SIZE_GUIDANCE
from sapwood.messaging.envelope._forms import check_size as check_size
from sapwood.messaging.envelope._forms import checksum as checksum
from sapwood.messaging.envelope._forms import from_bytes as from_bytes
from sapwood.messaging.envelope._forms import from_dict as from_dict
from sapwood.messaging.envelope._forms import from_json as from_json
from sapwood.messaging.envelope._forms import size_of as size_of
from sapwood.messaging.envelope._forms import to_bytes as to_bytes
from sapwood.messaging.envelope._forms import to_dict as to_dict
from sapwood.messaging.envelope._forms import to_json as to_json
from sapwood.messaging.envelope._keys import KeyRing as KeyRing
from sapwood.messaging.envelope._kinds import MessageKind as MessageKind
from sapwood.messaging.envelope._kinds import declare_kind as declare_kind
from sapwood.messaging.envelope._kinds import kind_named as kind_named
from sapwood.messaging.envelope._kinds import message_kinds as message_kinds
from sapwood.messaging.envelope._plain import record_from_plain as record_from_plain
from sapwood.messaging.envelope._plain import record_to_plain as record_to_plain
from sapwood.messaging.envelope._priorities import PriorityName as PriorityName
from sapwood.messaging.envelope._priorities import lane_of as lane_of
from sapwood.messaging.envelope._priorities import priority_from_level as priority_from_level
from sapwood.messaging.envelope._priorities import priority_from_rank as priority_from_rank
from sapwood.messaging.envelope._priorities import priority_named as priority_named
from sapwood.messaging.envelope._schemas import Schema as Schema
from sapwood.messaging.envelope._schemas import Schemas as Schemas
from sapwood.messaging.envelope._schemas import schema_of as schema_of
from sapwood.messaging.envelope._signing import Ed25519Signer as Ed25519Signer
from sapwood.messaging.envelope._signing import Ed25519Verifier as Ed25519Verifier
from sapwood.messaging.envelope._signing import HMACKeys as HMACKeys
from sapwood.messaging.envelope._signing import SignedMessage as SignedMessage
from sapwood.messaging.envelope._signing import Signer as Signer
from sapwood.messaging.envelope._signing import Verifier as Verifier
from sapwood.messaging.envelope._signing import sign as sign
from sapwood.messaging.envelope._signing import verify as verify

_publish(globals())
