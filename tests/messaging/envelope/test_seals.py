"""Signatures and encryption: what was not made by a holder of the key is refused, with the reason."""

from __future__ import annotations

import base64
import builtins
import pickle
from typing import Any, cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.actors import RealEnvironment, record
from sapwood.errors import DecryptionRefused, InvalidOption, MissingExtra, SignatureRefused
from sapwood.messaging.envelope import (
    Ed25519Signer,
    Ed25519Verifier,
    Encrypted,
    Envelope,
    HMACKeys,
    KeyRing,
    PayloadCipher,
    SignedMessage,
    Signer,
    Verifier,
    make_envelope,
    sign,
    to_bytes,
    verify,
)
from sapwood.persistence import decode, encode

ENVIRONMENT = RealEnvironment()
KEY, OTHER = bytes(range(32)), bytes(range(32, 64))


@record("test.seals.secret")
class Secret:
    text: str


def message(text: str = "the meeting is at noon", **fields: Any) -> Envelope[Secret]:
    given: dict[str, Any] = {"sender": "alice", "recipient": "bob", **fields}
    return make_envelope(ENVIRONMENT, Secret(text), **given)


def pair(name: str) -> tuple[Signer, Verifier]:
    ring = KeyRing({"k1": KEY})
    if name == "hmac":
        keys = HMACKeys(ring)
        return keys, keys
    signer = Ed25519Signer(ring)
    return signer, Ed25519Verifier({"k1": signer.public_key})


BOTH = pytest.mark.parametrize("kind", ["hmac", "ed25519"])


@pytest.mark.row("S2-049")
@BOTH
def test_a_signed_message_comes_back_and_every_changed_byte_is_refused(kind: str) -> None:
    signer, verifier = pair(kind)
    sent = message()
    data = sign(sent, signer)
    assert verify(data, verifier) == sent

    signed = cast("SignedMessage", decode(data))
    for place in range(0, len(signed.body), 7):
        body = signed.body[:place] + bytes([signed.body[place] ^ 1]) + signed.body[place + 1 :]
        with pytest.raises(SignatureRefused) as caught:
            verify(encode(attrs.evolve(cast("Any", signed), body=body)), verifier)
        assert caught.value.reason == "mismatch"


@BOTH
def test_what_is_unsigned_or_signed_by_a_stranger_is_refused_with_the_reason(kind: str) -> None:
    signer, verifier = pair(kind)
    signed = cast("SignedMessage", decode(sign(message(), signer)))

    def reason(data: bytes) -> str:
        with pytest.raises(SignatureRefused) as caught:
            verify(data, verifier)
        return caught.value.reason

    assert reason(to_bytes(message())) == "unsigned"
    assert reason(b"\xc1") == "mismatch"
    assert reason(encode(attrs.evolve(cast("Any", signed), key_id="k2"))) == "unknown_key"
    assert reason(encode(attrs.evolve(cast("Any", signed), algorithm="none"))) == "unknown_key"
    assert reason(encode(attrs.evolve(cast("Any", signed), signature=b""))) == "mismatch"
    forged = pair(kind)[0] if kind == "hmac" else Ed25519Signer(KeyRing({"k1": OTHER}))
    if kind == "hmac":
        forged = HMACKeys(KeyRing({"k1": OTHER}))
    assert reason(sign(message(), forged)) == "mismatch"


def test_a_key_signs_for_its_own_senders_only() -> None:
    keys = HMACKeys(KeyRing({"k1": KEY, "k2": OTHER}, senders={"k1": frozenset({"alice"})}))
    assert verify(sign(message(sender="alice"), keys), keys).sender == "alice"
    with pytest.raises(SignatureRefused) as caught:
        verify(sign(message(sender="mallory"), keys), keys)
    assert caught.value.reason == "wrong_sender"

    signer = Ed25519Signer(KeyRing({"k1": KEY}))
    verifier = Ed25519Verifier({"k1": signer.public_key}, senders={"k1": frozenset({"alice"})})
    with pytest.raises(SignatureRefused, match="may not sign for 'mallory'"):
        verify(sign(message(sender="mallory"), signer), verifier)


def test_a_signature_cannot_be_moved_to_another_key_id() -> None:
    senders = {"alices": frozenset({"alice"}), "bobs": frozenset({"bob"})}
    keys = HMACKeys(KeyRing({"alices": KEY, "bobs": KEY}, senders=senders))
    signed = cast("SignedMessage", decode(sign(message(sender="bob"), keys)))
    assert signed.key_id == "alices"
    with pytest.raises(SignatureRefused) as caught:
        verify(encode(attrs.evolve(cast("Any", signed), key_id="bobs")), keys)
    assert caught.value.reason == "mismatch"


def test_keys_can_be_rotated_because_older_ones_still_verify() -> None:
    old = HMACKeys(KeyRing({"2024": KEY}))
    new = HMACKeys(KeyRing({"2025": OTHER, "2024": KEY}))
    assert verify(sign(message(), old), new).sender == "alice"
    assert cast("SignedMessage", decode(sign(message(), new))).key_id == "2025"


@pytest.mark.row("S2-051")
def test_an_encrypted_payload_hides_its_content_and_comes_back() -> None:
    cipher = PayloadCipher(KeyRing({"k1": KEY}))
    sent = message()
    hidden = cipher.encrypt(sent, ENVIRONMENT)
    assert isinstance(hidden.payload, Encrypted)
    assert b"noon" in to_bytes(sent)
    assert b"noon" not in to_bytes(hidden)
    assert (hidden.recipient, hidden.message_id) == (sent.recipient, sent.message_id)
    assert cipher.decrypt(hidden) == sent


@given(st.text(), st.text(min_size=1, max_size=5))
def test_whatever_was_encrypted_comes_back_equal_and_with_a_new_nonce(text: str, header: str) -> None:
    cipher = PayloadCipher(KeyRing({"k1": KEY}))
    sent = message(text, headers={header: True})
    one, two = cipher.encrypt(sent, ENVIRONMENT), cipher.encrypt(sent, ENVIRONMENT)
    assert one.payload.nonce != two.payload.nonce
    assert cipher.decrypt(one) == cipher.decrypt(two) == sent


@pytest.mark.row("S2-051")
def test_a_header_that_was_changed_after_encryption_is_found() -> None:
    cipher = PayloadCipher(KeyRing({"k1": KEY, "k2": OTHER}))
    hidden = cipher.encrypt(message(kind="response", reply_to="m0"), ENVIRONMENT)
    changes: dict[str, Any] = {
        "message_id": "m", "sender": "mallory", "created_at": 1, "recipient": "eve", "topic": "t",
        "kind": "fill_report", "correlation_id": "c", "causation_id": "c", "reply_to": "m9", "priority": "urgent",
        "ttl": 5.0, "deadline": 5, "headers": {"a": 1},
    }  # fmt: skip
    for field, value in changes.items():
        with pytest.raises(DecryptionRefused) as caught:
            cipher.decrypt(attrs.evolve(cast("Any", hidden), **{field: value}))
        assert caught.value.reason == "tampered"


def test_a_ciphertext_that_cannot_be_decrypted_is_refused_with_the_reason() -> None:
    cipher = PayloadCipher(KeyRing({"k1": KEY, "k2": OTHER}))
    sent = message()
    hidden = cipher.encrypt(sent, ENVIRONMENT)

    def reason(**changes: Any) -> str:
        payload = attrs.evolve(cast("Any", hidden.payload), **changes)
        with pytest.raises(DecryptionRefused) as caught:
            cipher.decrypt(attrs.evolve(cast("Any", hidden), payload=payload))
        return caught.value.reason

    assert reason(key_id="k3") == "unknown_key"
    assert reason(key_id="k2") == "tampered"
    assert reason(nonce=b"0" * 12) == "tampered"
    assert reason(nonce=b"") == "malformed"
    assert reason(ciphertext=hidden.payload.ciphertext[:-1]) == "tampered"
    assert reason(ciphertext=b"") in {"tampered", "malformed"}
    with pytest.raises(DecryptionRefused, match="not encrypted"):
        cipher.decrypt(sent)
    with pytest.raises(InvalidOption, match="encrypted already"):
        cipher.encrypt(hidden, ENVIRONMENT)


@pytest.mark.row("S2-060")
def test_keys_come_from_the_environment_and_are_checked_at_once() -> None:
    text = f"k2={base64.b64encode(OTHER).decode()}, k1={base64.b64encode(KEY).decode()}"
    ring = KeyRing.from_environment("KEYS", environ={"KEYS": text})
    assert (ring.current, ring.key("k1"), ring.key("k3")) == ("k2", KEY, None)
    assert repr(ring) == "<KeyRing k2, k1>"


@pytest.mark.row("S2-060")
@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "not set"),
        ({"KEYS": " "}, "not set"),
        ({"KEYS": "c2VjcmV0LXNlY3JldA"}, "has no id"),
        ({"KEYS": "k1=c2VjcmV0%"}, "'k1' is no base64"),
        ({"KEYS": "k1=c2VjcmV0"}, "at least 32 bytes; got 6 bytes"),
        ({"KEYS": f"k1={base64.b64encode(KEY).decode()},k1={base64.b64encode(KEY).decode()}"}, "stands twice"),
    ],
    ids=["missing", "empty", "no id", "no base64", "short", "twice"],
)
def test_a_key_that_cannot_be_read_is_named_without_being_shown(environ: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption, match=said) as caught:
        KeyRing.from_environment("KEYS", environ=environ)
    assert "c2VjcmV0" not in str(caught.value)


def test_a_key_ring_that_cannot_work_is_refused() -> None:
    for make in (
        lambda: KeyRing({}),
        lambda: KeyRing({"": KEY}),
        lambda: KeyRing({"k1": cast("Any", "text")}),
        lambda: KeyRing({"k1": KEY}, senders={"k2": frozenset({"alice"})}),
        lambda: PayloadCipher(KeyRing({"k1": KEY + KEY})),
        lambda: Ed25519Signer(KeyRing({"k1": KEY + KEY})),
        lambda: Ed25519Verifier({"k1": b"short"}),
    ):
        with pytest.raises(InvalidOption):
            make()
    with pytest.raises(InvalidOption, match="pickled"):
        pickle.dumps(KeyRing({"k1": KEY}))


def test_a_missing_package_is_named_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def no_cryptography(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real_import(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", no_cryptography)
    with pytest.raises(MissingExtra, match=r"sapwood\[crypto\]"):
        PayloadCipher(KeyRing({"k1": KEY}))
    with pytest.raises(MissingExtra, match=r"sapwood\[crypto\]"):
        Ed25519Signer(KeyRing({"k1": KEY}))
