"""The suite that every backend must pass, on the local one with one and with several partitions."""

from __future__ import annotations

import pytest

from sapwood.errors import InvalidOption
from sapwood.registry import LocalBackend, RegistryBackend
from sapwood.testing import RegistryBackendSuite


@pytest.mark.row("S4-041", "S4-042", "K01", "K03", "K04", "K06", "K07", "K08", "K09")
class TestLocalBackend(RegistryBackendSuite):
    def make(self) -> RegistryBackend:
        return LocalBackend()


class TestLocalBackendOfOnePartition(RegistryBackendSuite):
    def make(self) -> RegistryBackend:
        return LocalBackend(1)


@pytest.mark.parametrize("partitions", [0, -1, True, 1.0, "4"])
def test_a_number_of_partitions_that_is_none_is_refused(partitions: int) -> None:
    with pytest.raises(InvalidOption, match="partitions: expected an int >= 1"):
        LocalBackend(partitions)


async def test_a_suite_without_a_backend_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"make\(\)"):
        async with RegistryBackendSuite().bench():
            pass
