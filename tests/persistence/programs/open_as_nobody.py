"""Opens or inspects a store as a user without rights and prints why that failed, or `opened`."""

from __future__ import annotations

import os
import sys

import trio

from sapwood.actors import RealEnvironment
from sapwood.errors import StoreUnavailable
from sapwood.persistence import open_store, read_summary

NOBODY = 65534


async def open_it(path: str) -> None:
    async with open_store(path, RealEnvironment()):
        pass


def main(action: str, path: str) -> None:
    trio.run(trio.sleep, 0)  # what is imported late is imported while it may be read
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        if action == "open":
            trio.run(open_it, path)
        else:
            read_summary(path)
    except StoreUnavailable as error:
        sys.stdout.write(error.reason)
    else:
        sys.stdout.write("opened")


main(*sys.argv[1:])
