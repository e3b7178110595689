"""Key rings: named secrets that come from the process environment and are checked before anything starts."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Any, Final

from sapwood.errors import InvalidOption

MIN_BYTES: Final = 32
"""Bytes of the shortest key that is accepted."""


class KeyRing:
    """Named keys; the first one signs and encrypts, all of them verify and decrypt, so that keys can be rotated.

    Neither `repr` nor an error shows a key. Keys belong in the process environment, never in code (S2-060).

    Args:
        keys: `{id: key}`, each key of at least 32 bytes.
        senders: `{id: names}`: the senders that a key may sign for; a key that is not in it may sign for all (S2-049).

    Raises:
        InvalidOption: if there is no key, one is too short, or `senders` names a key that is not there.
    """

    def __init__(self, keys: Mapping[str, bytes], *, senders: Mapping[str, frozenset[str]] | None = None) -> None:
        if not keys:
            raise InvalidOption("key ring: expected at least one key; got none")
        for name, key in keys.items():
            if not isinstance(name, str) or not name:
                raise InvalidOption(f"key ring: expected ids that are text; got {name!r}")
            if not isinstance(key, bytes) or len(key) < MIN_BYTES:
                got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
                raise InvalidOption(f"key {name!r}: expected at least {MIN_BYTES} bytes; got {got}")
        strangers = sorted(set(senders or {}) - set(keys))
        if strangers:
            raise InvalidOption(f"key ring: senders names {strangers[0]!r}, which is none of {', '.join(keys)}")
        self._keys = dict(keys)
        self._senders = dict(senders or {})

    @classmethod
    def from_environment(
        cls,
        variable: str,
        *,
        environ: Mapping[str, str] | None = None,
        senders: Mapping[str, frozenset[str]] | None = None,
    ) -> KeyRing:
        """Read keys from a variable of the process environment: `id=base64` pairs, separated by commas.

        Args:
            variable: Its name, such as `SAPWOOD_SIGNING_KEYS`.
            environ: Where to look; None for the environment of this process.
            senders: See `KeyRing`.

        Raises:
            InvalidOption: if the variable is missing or cannot be read; no part of its value is shown.
        """
        text = (os.environ if environ is None else environ).get(variable, "")
        if not text.strip():
            raise InvalidOption(f"{variable}: expected id=base64 pairs, separated by commas; the variable is not set")
        keys: dict[str, bytes] = {}
        for place, pair in enumerate(text.split(","), start=1):
            name, equals, encoded = pair.strip().partition("=")
            if not equals or not name:
                raise InvalidOption(f"{variable}: expected id=base64; pair {place} has no id")
            if name in keys:
                raise InvalidOption(f"{variable}: the id {name!r} stands twice")
            try:
                keys[name] = base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                raise InvalidOption(f"{variable}: the key {name!r} is no base64") from None
        return cls(keys, senders=senders)

    def __repr__(self) -> str:
        return f"<KeyRing {', '.join(self._keys)}>"

    def __getstate__(self) -> Any:
        raise InvalidOption("a key ring cannot be pickled or stored; read it from the environment where it is needed")

    @property
    def current(self) -> str:
        """Id of the key that signs and encrypts."""
        return next(iter(self._keys))

    def key(self, key_id: str) -> bytes | None:
        """Return a key, or None if the ring does not hold it."""
        return self._keys.get(key_id)

    def may_sign_for(self, key_id: str, sender: str) -> bool:
        """Say whether a key may sign for a sender."""
        allowed = self._senders.get(key_id)
        return allowed is None or sender in allowed
