"""Descriptions: how an MCP server is reached. They hold secrets, and show none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import attrs

from sapwood.errors import InvalidOption

HIDDEN: Final = "***"
_LEAST_SECRET: Final = 4
"""Shorter values are no secrets, and hiding them would make every message unreadable."""


def _arguments(values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise InvalidOption("StdioServer args: expected several texts; got one: write args=(...,)")
    return tuple(values)


def _texts(values: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(values))


def _check_texts(description: Any, attribute: attrs.Attribute[Any], value: Mapping[str, Any]) -> None:
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            # The value is not shown: it may be a secret of another type.
            got = f"{type(name).__name__} to {type(text).__name__}"
            raise InvalidOption(f"{type(description).__name__} {attribute.name}: expected text to text; got {got}")


@attrs.frozen
class StdioServer:
    """A server that is started as a process of its own, and speaks over its standard input and output.

    It inherits `HOME`, `PATH` and the like, and none of the other variables of this process. What it writes to its
    standard error goes where that of this process goes.

    Attributes:
        command: The program, looked up in `PATH`.
        args: Its arguments; not shown, since they often hold keys.
        env: Environment variables beside the inherited ones; not shown.
        cwd: Its folder; None for that of this process.

    Raises:
        InvalidOption: if something else than text is given.
    """

    command: str
    args: tuple[str, ...] = attrs.field(default=(), converter=_arguments, repr=False)
    env: Mapping[str, str] = attrs.field(factory=dict[str, str], converter=_texts, validator=_check_texts, repr=False)
    cwd: str | Path | None = None

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.command, str) or not self.command:
            raise InvalidOption(f"StdioServer command: expected the name of a program; got {self.command!r}")
        for place, each in enumerate(self.args):
            if not isinstance(each, str):
                raise InvalidOption(f"StdioServer args[{place}]: expected text; got {type(each).__name__}")

    @property
    def address(self) -> str:
        """Where it is, without secrets."""
        return self.command

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no log may show."""
        return tuple(self.env.values())


def shown_url(url: str) -> str:
    """Return a URL without credentials, query and fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


@attrs.frozen
class HttpServer:
    """A server that is reached over streamable HTTP.

    Attributes:
        url: Its address, `http` or `https`; shown without its query. Credentials belong into headers.
        headers: Sent with every request; not shown.

    Raises:
        InvalidOption: if the URL is none, or holds credentials.
    """

    url: str = attrs.field(repr=shown_url)
    headers: Mapping[str, str] = attrs.field(
        factory=dict[str, str], converter=_texts, validator=_check_texts, repr=False
    )

    def __attrs_post_init__(self) -> None:
        problem = "expected one such as 'https://example.org/mcp'"
        if not isinstance(self.url, str):
            raise InvalidOption(f"HttpServer url: {problem}; got {self.url!r}")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidOption(f"HttpServer url: {problem}; got {shown_url(self.url)!r}")
        if parts.username is not None or parts.password is not None:
            raise InvalidOption(
                f"HttpServer url: expected no credentials in {shown_url(self.url)!r}; write "
                f"headers={{'Authorization': ...}}"
            )

    @property
    def address(self) -> str:
        """Where it is, without secrets."""
        return shown_url(self.url)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no log may show."""
        values = list(self.headers.values())
        values += [value.rpartition(" ")[2] for value in self.headers.values()]
        query = urlsplit(self.url).query
        return (*values, query) if query else tuple(values)


Description: TypeAlias = StdioServer | HttpServer
"""How a server is reached."""


def hide(text: str, description: Description) -> str:
    """Return a text in which no secret of a description is left."""
    for secret in sorted(description.secrets, key=len, reverse=True):
        if len(secret) >= _LEAST_SECRET:
            text = text.replace(secret, HIDDEN)
    return text
