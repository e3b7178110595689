"""The extra that this package needs."""

from __future__ import annotations

from importlib.util import find_spec

from sapwood.errors import MissingExtra


def check_installed(what: str) -> None:
    """Make sure that the MCP library is there, before anything that needs it is built.

    Raises:
        MissingExtra: if it is not.
    """
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        raise MissingExtra(what, "mcp", "mcp")
