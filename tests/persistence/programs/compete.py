"""Claims agent "a" and appends until somebody else claims it; prints each acknowledged sequence number."""

from __future__ import annotations

import sys

import trio

from sapwood.actors import RealEnvironment, record
from sapwood.errors import StaleEpoch
from sapwood.persistence import Journal, open_store


@record("crash.turn")
class Turn:
    seq: int
    owner: str


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main() -> None:
    environment = RealEnvironment()
    async with open_store(sys.argv[1], environment) as store:
        journal = Journal(store, environment)
        claim = await journal.claim("a", owner="first")
        seq = claim.seq
        try:
            while True:
                turn = Turn(seq + 1, "first")
                seq = await journal.append("a", epoch=claim.epoch, expected_seq=seq, events=[turn])
                say(seq)
        except StaleEpoch as error:
            say(f"fenced {error.held} {error.current}")


trio.run(main)
