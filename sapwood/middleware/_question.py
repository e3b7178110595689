"""Questions to people: what may be chosen, and which answers fit."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from sapwood.conversation import Interrupt
from sapwood.errors import InvalidOption

QuestionKind: TypeAlias = Literal["text", "one", "several"]
"""An answer in free words, one of the choices, or any number of them."""

MOST_CHOICES: Final = 10


@attrs.frozen
class Choice:
    """One answer to choose.

    Attributes:
        value: What the model gets back.
        label: What people see.
        description: What it means; may be empty.
    """

    value: str
    label: str = attrs.field(default=attrs.Factory(lambda choice: choice.value, takes_self=True))
    description: str = ""


@attrs.frozen
class Question:
    """A question to a person.

    Attributes:
        text: The question.
        kind: `text`, `one` or `several`.
        choices: 2 to 10 with different values; none for `text`.
        other: Whether other words than the choices are welcome.

    Raises:
        InvalidOption: if there is no question, or the choices do not fit its kind.
    """

    text: str
    kind: QuestionKind = "text"
    choices: tuple[Choice, ...] = ()
    other: bool = False

    def __attrs_post_init__(self) -> None:
        if not self.text.strip():
            raise InvalidOption("question: expected a text that is not blank")
        if self.kind not in get_args(QuestionKind):
            raise InvalidOption(f"question: expected a kind of text, one or several; got {self.kind!r}")
        if self.kind == "text":
            if self.choices:
                raise InvalidOption("question: expected no choices for kind text; got some: use kind one or several")
            return
        if not 2 <= len(self.choices) <= MOST_CHOICES:
            raise InvalidOption(f"question: expected 2 to {MOST_CHOICES} choices; got {len(self.choices)}")
        counted = Counter(choice.value for choice in self.choices)
        twice = [value for value, count in counted.items() if count > 1]
        if twice:
            raise InvalidOption(f"question: expected choices with different values; got {twice[0]!r} twice")
        if "" in counted:
            raise InvalidOption("question: expected choices with values; got an empty one")

    def details(self) -> dict[str, Any]:
        """Return it as the details of an interrupt."""
        return {
            "kind": self.kind,
            "choices": [attrs.asdict(choice) for choice in self.choices],
            "other": self.other,
        }

    @classmethod
    def of(cls, interrupt: Interrupt) -> Question:
        """Return the question that an interrupt asks.

        Raises:
            InvalidOption: if it asks none.
        """
        details = interrupt.details
        try:
            choices = tuple(Choice(**each) for each in details["choices"])
            return cls(interrupt.reason, details["kind"], choices, details["other"])
        except (KeyError, TypeError) as error:
            raise InvalidOption(f"expected the interrupt of a question; got {interrupt.id!r} ({error!r})") from error

    def answer(self, *chosen: str, other: str = "") -> dict[str, Any]:
        """Return the arguments of an answer: `await approval.answer(**question.answer("blue"))`.

        Args:
            *chosen: For `text` what the person wrote; otherwise values of choices.
            other: An answer in other words than the choices.

        Raises:
            InvalidOption: if the question cannot be answered so.
        """
        if self.kind == "text":
            if len(chosen) != 1 or other or not chosen[0].strip():
                raise InvalidOption(f"answer: expected one text that is not blank; got {(*chosen, other)!r}")
            return {"result": chosen[0]}
        known = [choice.value for choice in self.choices]
        unknown = [value for value in chosen if value not in known]
        if unknown:
            hint = "; pass other words as other=" if self.other else ""
            raise InvalidOption(f"answer: expected values from {', '.join(known)}; got {unknown[0]!r}{hint}")
        if other and not self.other:
            raise InvalidOption(f"answer: expected one of {', '.join(known)}; got other words: {other!r}")
        if len(set(chosen)) < len(chosen):
            raise InvalidOption(f"answer: expected every value once; got {chosen!r}")
        if self.kind == "one":
            if len(chosen) + bool(other) != 1:
                raise InvalidOption(f"answer: expected exactly one value; got {(*chosen, other)!r}")
            return {"other": other} if other else {"result": chosen[0]}
        return {"chosen": list(chosen), **({"other": other} if other else {})}
