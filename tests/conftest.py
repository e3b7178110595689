"""What every test of the project shares."""

from __future__ import annotations

import pytest
from hypothesis import settings

pytest_plugins = ["rows"]

# Repeatable by default; no deadline, for a shared machine is slow at times. `--hypothesis-profile=search` looks for
# new counterexamples.
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the tests marked soak in their long form")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak: a test that has a long form, run by `make soak`")


@pytest.fixture(scope="session")
def interleavings(request: pytest.FixtureRequest) -> int:
    """How many seeded interleavings a chaos test runs: 500, or 20,000 in the long form."""
    return 20_000 if request.config.getoption("--soak") else 500
