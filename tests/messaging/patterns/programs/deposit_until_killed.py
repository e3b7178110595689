"""Deposits a cent again and again, and says each balance, until it is killed: deposit_until_killed.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from sapwood.actors import RealEnvironment, open_system
from sapwood.persistence import open_store

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from tests.messaging.patterns.kit import Bank, Cents, Deposit


async def main(folder: Path) -> None:
    environment = RealEnvironment()
    async with open_store(folder / "bank.db", environment) as store, open_system(environment) as system:
        bank = await system.spawn(Bank, store, "a")
        while True:
            sys.stdout.write(f"{await bank.ask(Cents())}\n")
            sys.stdout.flush()
            await bank.ask(Deposit(1))


trio.run(main, Path(sys.argv[1]))
