"""The directory in which many actors may stand under one key."""

from __future__ import annotations

from typing import TypeVar

from sapwood.registry._directory import Directory
from sapwood.registry._keys import Key
from sapwood.registry._registrations import Registration

V = TypeVar("V")


class DuplicateDirectory(Directory[V]):
    """Any number of registrations under each key, several of one actor included (OTP K05).

    Good for groups and subscriptions. It has no `whereis`, `tell` and `ask`, for a key names no single actor (OTP
    K10), and no `update_value`, for it may have several (OTP K13).
    """

    def _check_free(self, key: Key, held: list[Registration[V]]) -> None:
        """Refuse nothing."""
