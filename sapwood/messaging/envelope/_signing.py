"""Signing: an envelope as bytes that nobody without the key can make or change."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from sapwood.actors import record
from sapwood.errors import CodecError, InvalidOption, MissingExtra, SignatureRefused
from sapwood.messaging.envelope._envelope import Envelope
from sapwood.messaging.envelope._forms import from_bytes, to_bytes
from sapwood.messaging.envelope._keys import KeyRing
from sapwood.persistence import decode, encode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_SEPARATOR: Final = b"\0"


@record("messaging.signed")
class SignedMessage:
    """What travels: the msgpack form of an envelope, and its signature.

    Attributes:
        body: The form.
        algorithm: `hmac-sha256` or `ed25519`.
        key_id: The key that signed.
        signature: Over algorithm, key id and body.
    """

    body: bytes
    algorithm: str
    key_id: str
    signature: bytes


class Signer(Protocol):
    """Signs bytes with one key."""

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        ...

    @property
    def key_id(self) -> str:
        """Id of the key that signs."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Return the signature of the bytes."""
        ...


class Verifier(Protocol):
    """Says whether signatures are right."""

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        ...

    def knows(self, key_id: str) -> bool:
        """Say whether it has the key."""
        ...

    def verify(self, key_id: str, data: bytes, signature: bytes) -> bool:
        """Say whether the key signed these bytes."""
        ...

    def may_sign_for(self, key_id: str, sender: str) -> bool:
        """Say whether the key may sign for the sender."""
        ...


class HMACKeys:
    """Signs and verifies with shared secrets: HMAC-SHA256.

    Args:
        keys: The secrets; the first one signs.
    """

    algorithm = "hmac-sha256"

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    @property
    def key_id(self) -> str:
        return self._keys.current

    def sign(self, data: bytes) -> bytes:
        key = self._keys.key(self.key_id)
        assert key is not None
        return hmac.digest(key, data, hashlib.sha256)

    def knows(self, key_id: str) -> bool:
        return self._keys.key(key_id) is not None

    def verify(self, key_id: str, data: bytes, signature: bytes) -> bool:
        key = self._keys.key(key_id)
        return key is not None and hmac.compare_digest(hmac.digest(key, data, hashlib.sha256), signature)

    def may_sign_for(self, key_id: str, sender: str) -> bool:
        return self._keys.may_sign_for(key_id, sender)


class Ed25519Signer:
    """Signs with a private key; who holds only the public key can verify and not sign. Needs `cryptography`.

    Args:
        keys: Seeds of 32 bytes; the first one signs.

    Raises:
        InvalidOption: if a seed has another length.
        MissingExtra: if `cryptography` is not installed.
    """

    algorithm = "ed25519"

    def __init__(self, keys: KeyRing) -> None:
        self._key_id = keys.current
        seed = keys.key(self._key_id)
        assert seed is not None
        if len(seed) != 32:
            raise InvalidOption(f"key {self._key_id!r}: expected a seed of 32 bytes for ed25519; got {len(seed)}")
        self._private: Ed25519PrivateKey = _ed25519().Ed25519PrivateKey.from_private_bytes(seed)

    @property
    def key_id(self) -> str:
        return self._key_id

    @property
    def public_key(self) -> bytes:
        """The 32 bytes to give to those who verify."""
        return self._private.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)


class Ed25519Verifier:
    """Verifies with public keys. Needs `cryptography`.

    Args:
        public_keys: `{id: 32 bytes}`; they are no secrets.
        senders: `{id: names}`: the senders that a key may sign for; a key that is not in it may sign for all.

    Raises:
        InvalidOption: if a key is none.
        MissingExtra: if `cryptography` is not installed.
    """

    algorithm = "ed25519"

    def __init__(
        self, public_keys: Mapping[str, bytes], *, senders: Mapping[str, frozenset[str]] | None = None
    ) -> None:
        self._keys: dict[str, Ed25519PublicKey] = {}
        self._senders = dict(senders or {})
        for name, key in public_keys.items():
            try:
                self._keys[name] = _ed25519().Ed25519PublicKey.from_public_bytes(key)
            except (ValueError, TypeError) as error:
                raise InvalidOption(f"public key {name!r}: expected the 32 bytes of an ed25519 key; {error}") from None

    def knows(self, key_id: str) -> bool:
        return key_id in self._keys

    def verify(self, key_id: str, data: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature

        try:
            self._keys[key_id].verify(signature, data)
        except (InvalidSignature, KeyError):
            return False
        return True

    def may_sign_for(self, key_id: str, sender: str) -> bool:
        allowed = self._senders.get(key_id)
        return allowed is None or sender in allowed


def sign(envelope: Envelope[Any], signer: Signer) -> bytes:
    """Return an envelope in signed form.

    Raises:
        CodecError: if its payload does not fit its schema.
    """
    body = to_bytes(envelope)
    signature = signer.sign(_signed_part(signer.algorithm, signer.key_id, body))
    return encode(SignedMessage(body, signer.algorithm, signer.key_id, signature))


def verify(data: bytes, *verifiers: Verifier) -> Envelope[Any]:
    """Return the envelope in signed bytes; nothing of it is read before its signature has been found right.

    Raises:
        SignatureRefused: if the bytes are not signed, the key is unknown, something was changed, or the key may not
            sign for the sender.
        CodecError, FutureVersion: if what was signed cannot be read.
    """
    try:
        signed = decode(data)
    except CodecError as error:
        raise SignatureRefused("mismatch", None, f"the bytes cannot be read ({error})") from None
    if not isinstance(signed, SignedMessage):
        raise SignatureRefused("unsigned", None, f"expected a signed message; got a {type(signed).__name__}")
    key_id = signed.key_id
    verifier = next((one for one in verifiers if one.algorithm == signed.algorithm and one.knows(key_id)), None)
    if verifier is None:
        raise SignatureRefused("unknown_key", key_id, f"no verifier holds the {signed.algorithm} key {key_id!r}")
    if not verifier.verify(key_id, _signed_part(signed.algorithm, key_id, signed.body), signed.signature):
        raise SignatureRefused("mismatch", key_id, f"the key {key_id!r} did not sign these bytes")
    envelope = from_bytes(signed.body)
    if not verifier.may_sign_for(key_id, envelope.sender):
        raise SignatureRefused("wrong_sender", key_id, f"the key {key_id!r} may not sign for {envelope.sender!r}")
    return envelope


def _signed_part(algorithm: str, key_id: str, body: bytes) -> bytes:
    head = (b"sapwood message", algorithm.encode(), key_id.encode())
    # Lengths, so that no two different triples have the same bytes.
    return _SEPARATOR.join((*(b"%d:%b" % (len(part), part) for part in head), body))


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtra("an Ed25519 signature", "cryptography", "crypto") from None
    return ed25519
