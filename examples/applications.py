"""Three applications: a ledger, a teller that requires it, and a greeter that may end; run: python applications.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from sapwood import Actor, Request, Running, child, handle, message, open_runtime, supervisor
from sapwood.supervision import Application, applications, which_applications

CONTROLLER = ("applications", "bank")


@message("example.bank.deposit")
class Deposit(Request[int]):
    cents: int


class Ledger:
    """What the ledger application opens and closes."""

    def __init__(self, currency: str) -> None:
        self.currency = currency
        self.cents = 0
        self.closed = False


class Teller(Actor):
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @handle
    def deposit(self, message: Deposit) -> int:
        self.ledger.cents += message.cents
        return self.ledger.cents


async def audit(ledger: Ledger) -> None:
    await trio.sleep_forever()


async def greet() -> None:
    print("good morning")
    await trio.lowlevel.checkpoint()


def bank(opened: list[Ledger]) -> list[Application]:
    """Describe the applications; nothing runs yet."""

    def open_ledger(configuration: Mapping[str, Any]) -> Ledger:
        opened.append(Ledger(configuration["currency"]))
        print("ledger is open")
        return opened[-1]

    def close_ledger(ledger: Ledger) -> None:
        ledger.closed = True
        print(f"ledger is closed with {ledger.cents} cents ({ledger.currency})")

    def tellers(state: object) -> Any:
        return supervisor([child(Teller, opened[-1], key=("teller", 1))], strategy="one_for_one", id="tellers")

    return [
        Application("greeter", child(greet), type="transient"),  # its end is no reason to stop the bank
        Application("teller", tellers, requires=["ledger"], prep_stop=lambda state: print("no more customers")),
        Application(
            "ledger",
            lambda ledger: child(audit, ledger),
            configuration={"currency": "EUR"},
            start=open_ledger,
            stop=close_ledger,
        ),
    ]


async def main() -> None:
    opened: list[Ledger] = []
    async with open_runtime(children=[applications(bank(opened), key=CONTROLLER)]) as runtime:
        match runtime.registry.lookup_nowait(("teller", 1)), runtime.registry.lookup_nowait(CONTROLLER):
            case Running(teller), Running(controller):
                await teller.ask(Deposit(500))
                print(f"balance: {await teller.ask(Deposit(250))}")
                for info in which_applications(controller):
                    print(f"{info.name}: {info.state}")
            case found:
                raise SystemExit(f"the bank is closed: {found}")
    assert [(ledger.cents, ledger.closed) for ledger in opened] == [(750, True)]


if __name__ == "__main__":
    trio.run(main)
