"""AskUserQuestion: the model asks a person, and the run waits for the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NotRequired, TypedDict

from sapwood.conversation import AssistantMessage, Interrupt, State, ToolCall, Verdict
from sapwood.errors import InvalidOption, ToolError
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import HookResult, Middleware, Suspend
from sapwood.middleware._question import Choice, Question, QuestionKind
from sapwood.tools import Tool, tool

TOOL: Final = "ask_user"


class ChoiceItem(TypedDict):
    """An answer to choose, as the model writes it."""

    value: str
    label: NotRequired[str]
    description: NotRequired[str]


class AskUserQuestion(Middleware):
    """Offers `ask_user`: a question with one choice, several, or free text; the answer is the tool's result.

    The run waits as it does for an approval: the question is an interrupt of kind `question`, durable before anybody
    sees it, and open again after a restart. Several questions of one answer are answered one by one in any order, and
    other calls beside them run at once. A person who rejects a question leaves it unanswered, and the model is told.

    `Question.of(approval.interrupt)` is the question for a user interface; its `answer` checks what was chosen:
    `await approval.answer(**question.answer("blue"))`.

    Args:
        allow_other: Whether a choice may be answered in other words; None leaves it to the model.
        allow_reject: Whether a person may leave a question unanswered.
        expires_after: Seconds after which an answer is too late; None for never.

    Raises:
        InvalidOption: if `expires_after` is not above 0.
    """

    def __init__(
        self, *, allow_other: bool | None = None, allow_reject: bool = True, expires_after: float | None = None
    ) -> None:
        if expires_after is not None and not expires_after > 0:
            raise InvalidOption(f"AskUserQuestion: expected expires_after above 0 seconds; got {expires_after!r}")
        self.allow_other = allow_other
        self.allow_reject = allow_reject
        self.expires_after = expires_after

    def system_prompt(self, context: MiddlewareContext) -> str:
        return (
            f"If you cannot go on without a decision or a fact that only a person has, ask with `{TOOL}`: one "
            "question a call, with choices where there are some. Do not ask for what you can find out."
        )

    def tools(self, context: MiddlewareContext) -> Sequence[Tool[..., Any]]:
        offered = _ask if self.allow_other is None else _ask_as_configured
        return (tool(name=TOOL, idempotent=True)(offered),)

    async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
        answer = next((each for each in reversed(state.messages) if isinstance(each, AssistantMessage)), None)
        interrupts = [
            interrupt
            for call in (answer.tool_calls if answer is not None else ())
            if call.name == TOOL and context.tools.check(call) is None
            for interrupt in self._interrupts(call, context)
        ]
        return Suspend(tuple(interrupts)) if interrupts else None

    def _interrupts(self, call: ToolCall, context: MiddlewareContext) -> Sequence[Interrupt]:
        try:
            question = _question(allow_other=self.allow_other, **call.arguments)
        except InvalidOption:
            return ()  # the call runs, and its result says what is wrong
        now = context.environment.wall()
        allowed: tuple[Verdict, ...] = ("answer", "reject", "escalate") if self.allow_reject else ("answer", "escalate")
        interrupt = Interrupt(
            id=call.id,
            kind="question",
            call=call,
            reason=question.text,
            allowed=allowed,
            created_at=now,
            expires_at=None if self.expires_after is None else now + self.expires_after,
            details=question.details(),
        )
        return (interrupt,)


def _ask(
    question: str,
    kind: QuestionKind = "text",
    choices: list[ChoiceItem] | None = None,
    *,
    other: bool = False,
) -> str:
    """Ask a person, and wait for the answer.

    question: what you want to know, in one or two sentences.
    kind: text for an answer in their own words, one to choose one of the choices, several to choose any number.
    choices: 2 to 10 of them, each with a value that you get back, and a label and a description for the person.
    other: whether they may answer in other words than the choices.
    """
    return _refuse(question=question, kind=kind, choices=choices, other=other)


def _ask_as_configured(question: str, kind: QuestionKind = "text", choices: list[ChoiceItem] | None = None) -> str:
    """Ask a person, and wait for the answer.

    question: what you want to know, in one or two sentences.
    kind: text for an answer in their own words, one to choose one of the choices, several to choose any number.
    choices: 2 to 10 of them, each with a value that you get back, and a label and a description for the person.
    """
    return _refuse(question=question, kind=kind, choices=choices)


def _refuse(**arguments: Any) -> str:
    # Only a question that cannot be asked gets here: all others are answered instead of run.
    try:
        _question(allow_other=None, **arguments)
    except InvalidOption as error:
        raise ToolError(str(error)) from error
    raise ToolError("nobody was asked")


def _question(
    *,
    allow_other: bool | None,
    question: str,
    kind: QuestionKind = "text",
    choices: Sequence[ChoiceItem] | None = None,
    other: bool = False,
) -> Question:
    offered = tuple(
        Choice(each["value"], each.get("label", "") or each["value"], each.get("description", ""))
        for each in choices or ()
    )
    free = other if allow_other is None else allow_other
    return Question(question, kind, offered, other=free and kind != "text")
