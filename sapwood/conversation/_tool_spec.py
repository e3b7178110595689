"""A tool as a chat model sees it; shared by the packages that build tools and those that call models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class ToolSpec:
    """A tool as the model sees it.

    Attributes:
        name: At most 64 characters of `[a-zA-Z0-9_-]`.
        description: What it does and when to use it.
        parameters: JSON schema of an object with the arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
