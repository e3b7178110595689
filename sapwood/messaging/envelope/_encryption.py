"""Encryption of payloads: the header stays readable, and cannot be changed or moved to another payload."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, cast

import attrs

from sapwood.actors import Environment, record
from sapwood.errors import CodecError, DecryptionRefused, InvalidOption, MissingExtra
from sapwood.messaging.envelope._envelope import Envelope
from sapwood.messaging.envelope._keys import KeyRing
from sapwood.persistence import decode, encode

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12


@record("messaging.encrypted")
class Encrypted:
    """A payload that only holders of a key can read: AES-256-GCM, with the header as associated data (S2-051).

    Attributes:
        key_id: The key.
        nonce: 12 bytes, new for every message.
        ciphertext: The payload's record, and its tag.
    """

    key_id: str
    nonce: bytes
    ciphertext: bytes


class PayloadCipher:
    """Encrypts and decrypts payloads. Needs `cryptography`.

    Args:
        keys: Keys of exactly 32 bytes; the first one encrypts.

    Raises:
        InvalidOption: if the key that encrypts has another length.
        MissingExtra: if `cryptography` is not installed.
    """

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys
        self._aead(keys.current)

    def encrypt(self, envelope: Envelope[Any], environment: Environment) -> Envelope[Encrypted]:
        """Return the envelope with its payload encrypted.

        Args:
            envelope: With a payload in the clear.
            environment: Source of the nonce; a simulated one repeats its nonces, so use it with test keys only.

        Raises:
            InvalidOption: if the payload is encrypted already.
            CodecError: if it does not fit its schema.
        """
        if isinstance(envelope.payload, Encrypted):
            raise InvalidOption(f"encrypt: the payload of {envelope.message_id} is encrypted already")
        key_id = self._keys.current
        nonce = hashlib.sha256(environment.new_id().encode()).digest()[:NONCE_BYTES]
        sealed = self._aead(key_id).encrypt(nonce, encode(envelope.payload), _associated(envelope, key_id))
        return attrs.evolve(cast("Any", envelope), payload=Encrypted(key_id, nonce, sealed))

    def decrypt(self, envelope: Envelope[Any]) -> Envelope[Any]:
        """Return the envelope with its payload in the clear.

        Raises:
            DecryptionRefused: if its key is not there, or payload or header are not as they were encrypted.
            FutureVersion: if the payload is newer than its class.
        """
        hidden = envelope.payload
        if not isinstance(hidden, Encrypted):
            raise DecryptionRefused("malformed", None, f"the payload of {envelope.message_id} is not encrypted")
        if self._keys.key(hidden.key_id) is None:
            raise DecryptionRefused("unknown_key", hidden.key_id, f"the key {hidden.key_id!r} is not in the ring")
        from cryptography.exceptions import InvalidTag

        try:
            clear = self._aead(hidden.key_id).decrypt(
                hidden.nonce, hidden.ciphertext, _associated(envelope, hidden.key_id)
            )
        except InvalidTag:
            detail = f"payload or header of {envelope.message_id} were changed after it was encrypted"
            raise DecryptionRefused("tampered", hidden.key_id, detail) from None
        except ValueError as error:
            raise DecryptionRefused("malformed", hidden.key_id, str(error)) from None
        try:
            return attrs.evolve(cast("Any", envelope), payload=decode(clear))
        except CodecError as error:
            raise DecryptionRefused("malformed", hidden.key_id, str(error)) from None

    def _aead(self, key_id: str) -> Any:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise MissingExtra("encryption of payloads", "cryptography", "crypto") from None
        key = self._keys.key(key_id)
        assert key is not None
        if len(key) != KEY_BYTES:
            raise InvalidOption(f"key {key_id!r}: expected {KEY_BYTES} bytes for AES-256; got {len(key)}")
        return AESGCM(key)


def _associated(envelope: Envelope[Any], key_id: str) -> bytes:
    header = [getattr(envelope, field.name) for field in attrs.fields(cast("Any", Envelope)) if field.name != "payload"]
    return json.dumps(["sapwood payload", key_id, *header], separators=(",", ":")).encode()
