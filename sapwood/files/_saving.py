"""When files are saved that need not be saved at once."""

from __future__ import annotations

import attrs

from sapwood.errors import InvalidOption
from sapwood.files._paths import FilePath
from sapwood.supervision import Backoff


def _seconds(_: object, attribute: attrs.Attribute[float], value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"saving {attribute.name}: expected seconds above 0; got {value!r}")


def _bytes(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"saving {attribute.name}: expected a whole number from 0; got {value!r}")


@attrs.frozen
class Saving:
    """When a `BufferedBackend` saves.

    Attributes:
        debounce: Seconds without another edit of the file after which it is saved. Default 2 s.
        at_latest: Seconds after the first unsaved edit when it is saved though edits go on. Default 30 s.
        backoff: Delays between attempts after one has failed. Default 0.5 s, doubling up to 30 s.
        stop_within: Seconds that closing spends on saving what is left. Default 4 s. A filesystem of the runtime gets
            them beside its 5 s for stopping if they were given to `configure`, and within those 5 s if they were
            given to one of its mounts.
        max_unsaved_bytes: Above this, an edit is saved at once. Default 16 MiB.

    Raises:
        InvalidOption: if a number is out of its range.
    """

    debounce: float = attrs.field(default=2.0, validator=_seconds)
    at_latest: float = attrs.field(default=30.0, validator=_seconds)
    backoff: Backoff = attrs.field(factory=lambda: Backoff(initial=0.5, maximum=30.0))
    stop_within: float = attrs.field(default=4.0, validator=_seconds)
    max_unsaved_bytes: int = attrs.field(default=16 << 20, validator=_bytes)


@attrs.frozen
class SaveConflict:
    """Somebody else changed a file before an edit of it was saved; the edit was kept as a file of its own.

    Attributes:
        path: The file; it has the other's content.
        version: Version of the edit.
        found: Version that was found instead; 0 if the file was gone.
        kept_as: The file that holds the edit.
    """

    path: FilePath
    version: int
    found: int
    kept_as: FilePath
