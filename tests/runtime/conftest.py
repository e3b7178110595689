"""What the tests of the runtime share."""

from __future__ import annotations

import pytest


@pytest.fixture
def events() -> list[str]:
    """A list for the order of what happens."""
    return []
