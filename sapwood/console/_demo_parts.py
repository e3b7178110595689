"""What the demonstration is about: a bookkeeper, its requests, and a ledger that takes every payment it is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import attrs
import trio

from sapwood.actors import Environment
from sapwood.agents import Agent
from sapwood.conversation import State
from sapwood.files import DirectoryBackend, FileService
from sapwood.middleware import (
    FileSystem,
    HookResult,
    HumanInTheLoop,
    Middleware,
    MiddlewareContext,
    PatchToolCalls,
    TodoList,
)
from sapwood.models import OfflineModel
from sapwood.tools import ToolContext, tool

CONVERSATION: Final = "order-17"
SCOPE: Final = ("shop", 1)

ORDERS: Final = "order,cents\n15,4000\n16,6000\n17,7500"
TOTAL: Final = "17500"
REFUND_CENTS: Final = 7500

_TYPED: Final = ORDERS.replace("\n", "\\n")

WORK: Final = f"""\
Add to-dos: write down the orders, sum the amounts, audit the books, refund order 17
Write '{_TYPED}' to orders.csv
Sum the cents column of orders.csv and write the total to report.txt
Audit the books and write the result to audit.txt
Complete to-dos 1, 2 and 3"""

AUDITED: Final = f"3 orders of {TOTAL} cents: the books are right"
AUDIT_SECONDS: Final = 1.0
"""How long an audit takes; much longer than a registry needs to come back."""

REFUND: Final = "Refund 75 dollars of order 17, then complete to-do 4"

TO_NOBODY: Final = "Add a to-do: this must never be journaled"
TO_THE_NEW_ONE: Final = "Read report.txt"


@attrs.frozen
class Place:
    """Where the demonstration keeps what is real about it.

    Attributes:
        store: The SQLite file.
        files: The directory of the agent's files.
        ledger: The file that payments go to.
    """

    store: Path
    files: Path
    ledger: Path

    @classmethod
    def at(cls, store: Path) -> Place:
        """Return the place whose store is at a path, with its other files beside it."""
        return cls(store, store.with_name(store.name + ".files"), store.with_name(store.name + ".ledger"))

    def payments(self) -> list[Payment]:
        """Read the ledger."""
        if not self.ledger.exists():
            return []
        return [Payment(**json.loads(line)) for line in self.ledger.read_text(encoding="utf-8").splitlines()]

    def books(self) -> tuple[list[int], int]:
        """Read the cents of every order, and the total that was reported."""
        rows = (self.files / "orders.csv").read_text(encoding="utf-8").splitlines()[1:]
        report = (self.files / "report.txt").read_text(encoding="utf-8")
        return [int(row.partition(",")[2]) for row in rows], int(report)

    def configure(self, files: FileService, environment: Environment) -> None:
        """Keep the agent's files in the directory."""
        files.configure(SCOPE, lambda _: DirectoryBackend(self.files, environment))


@attrs.frozen
class Payment:
    """One line of the ledger.

    Attributes:
        key: Idempotency key of the call that paid.
        order: The order.
        cents: US cents.
    """

    key: str
    order: str
    cents: int


class Pace(Middleware):
    """Lets people follow: waits before every model call.

    Args:
        seconds: How long.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        await trio.sleep(self.seconds)
        return None


def bookkeeper(place: Place, *, pace: float) -> Agent:
    """Return the agent.

    Args:
        place: Where its ledger is.
        pace: Seconds to wait before every model call; 0 for none.
    """

    @tool(blocking=True)
    def refund(context: ToolContext, order: str, cents: int) -> str:
        """Refund part of an order. cents: amount in US cents."""
        # It looks for no earlier payment, so that a call that is carried out twice shows.
        payment = Payment(context.idempotency_key, order, cents)
        with place.ledger.open("a", encoding="utf-8") as ledger:
            ledger.write(json.dumps(attrs.asdict(payment)) + "\n")
            ledger.flush()
            os.fsync(ledger.fileno())
        return f"refunded {cents} cents of order {order}"

    @tool(idempotent=True)
    async def audit(context: ToolContext) -> str:
        """Audit the books: compare the orders with the reported total."""
        orders, total = await context.environment.in_thread(place.books)
        await trio.sleep(AUDIT_SECONDS)
        return (
            f"{len(orders)} orders of {sum(orders)} cents: the books are {'right' if sum(orders) == total else 'WRONG'}"
        )

    return Agent(
        name="bookkeeper",
        model=OfflineModel(),
        prompt="You keep the books of a small shop.",
        tools=[audit, refund],
        middleware=[
            *([Pace(pace)] if pace else []),
            TodoList(),
            FileSystem(scope=SCOPE),
            PatchToolCalls(),
            HumanInTheLoop(refund=True),
        ],
    )
