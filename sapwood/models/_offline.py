"""`OfflineModel`: drives tools from plain English requests by rules, with no key and no network."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from hashlib import sha256

import trio

from sapwood.conversation import AssistantMessage, Message, ToolCall, ToolResult, ToolSpec, UserMessage
from sapwood.errors import InvalidOption
from sapwood.models import _offline_reading, _offline_tables, _offline_todos, _offline_writing
from sapwood.models._offline_arguments import find_arguments
from sapwood.models._offline_choice import BUILT_IN, first_words, named_tool, rank
from sapwood.models._offline_clauses import split_clauses
from sapwood.models._offline_parameters import Parameter
from sapwood.models._offline_paths import find_paths, resolve_file
from sapwood.models._offline_plan import (
    LONGEST,
    Clause,
    Finding,
    Outcome,
    Plan,
    Rule,
    Toolbox,
    Wish,
    failure,
    is_too_long,
    say,
)
from sapwood.models._protocol import ModelAnswer, ModelEvent, ModelRequest, TextDelta, ToolCallDelta, ToolCallStarted
from sapwood.models._surrogates import clean_text
from sapwood.models._tokens import CHARACTERS_PER_TOKEN, count_usage, encode_arguments

MAX_CALLS = 50
"""Tool calls after which a turn is ended, whatever is left to do."""

_STRICT: tuple[Rule, ...] = (
    *_offline_todos.STRICT,
    *_offline_tables.STRICT,
    *_offline_reading.STRICT,
    *_offline_writing.STRICT,
)
"""Rules for requests that speak plainly of files or to-dos; tried in this order, before the tools' own words."""

_LOOSE: tuple[Rule, ...] = (*_offline_todos.LOOSE, *_offline_reading.LOOSE)
"""Rules that guess; tried after the tools' own words."""

_GREETING = re.compile(
    r"(?:hi|hello|hey|good (?:morning|evening|day)|thanks?(?: you)?|bye|ok|okay|great)\b.{0,20}", re.IGNORECASE
)
_REMARK = re.compile(r"(?:i|i'm|my|we|our|the|there|this|that|it|he|she|they|you|here)\b", re.IGNORECASE)
_HELP = re.compile(r"help\b.*|what can you do.*|who are you.*|what are you.*|what tools.*", re.IGNORECASE)


class OfflineModel:
    """A rule-based model that needs no key and no network; it is not a language model and never pretends to be one.

    It takes the last user message apart into requests, matches each with fixed rules, and asks for the tools that the
    agent really has: it lists, reads, writes, edits, deletes and searches files, keeps to-dos, and sums columns where
    the built-in tools for that are on offer; any other tool it chooses by the words of its name and description, and
    fills its parameters from the numbers, names and quoted texts of the request. What it cannot find it asks for; what
    no rule fits it says it cannot do. Several requests in one message are carried out in order, and the first that
    fails ends the turn, with the rest named as not done. The answer repeats what the tools reported, errors too.

    The same request and results always give the same answer: call ids are derived from the conversation. Tokens are
    counted at 4 characters each.

    Args:
        word_delay: Seconds between the words that it streams, for demonstrations.

    Raises:
        InvalidOption: if `word_delay` is negative.
    """

    def __init__(self, *, word_delay: float = 0.0) -> None:
        if not word_delay >= 0:
            raise InvalidOption(f"word_delay: expected seconds from 0 up; got {word_delay!r}")
        self._word_delay = word_delay

    def __repr__(self) -> str:
        return "<OfflineModel>"

    @property
    def name(self) -> str:
        """`offline:rules`."""
        return "offline:rules"

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent], None]:
        """Answer by rule; see `ChatModel.stream`. Raises nothing."""
        await trio.lowlevel.checkpoint()
        async with aclosing(self._answer(request)) as events:
            yield events

    async def _answer(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        decided = decide(request)
        text, calls, stop = "", tuple[ToolCall, ...](), "tools"
        await trio.lowlevel.checkpoint()
        if isinstance(decided, Wish):
            call = ToolCall(_call_id(request, decided), decided.tool, decided.arguments)
            calls = (call,)
            yield ToolCallStarted(call.id, call.name)
            yield ToolCallDelta(call.id, encode_arguments(call.arguments))
        else:
            text, stop = _limited(clean_text(decided), request.max_tokens)
            for word in re.findall(r"\s*\S+|\s+$", text):
                await trio.sleep(self._word_delay)
                yield TextDelta(word)
        usage = count_usage(request, text, calls)
        yield ModelAnswer(AssistantMessage(text, calls, stop_reason=stop, usage=usage))


def _limited(text: str, max_tokens: int | None) -> tuple[str, str]:
    limit = len(text) if max_tokens is None else max_tokens * CHARACTERS_PER_TOKEN
    return text[:limit], "end" if len(text) <= limit else "length"


def decide(request: ModelRequest) -> Wish | str:
    """Return the next tool call of the turn, or the answer that ends it."""
    text, recorded = _read_turn(request.messages)
    tools = {tool.name: tool for tool in request.tools}
    clauses = split_clauses(text, first_words(request.tools))
    findings: list[Finding] = []
    if len(recorded) >= MAX_CALLS:
        return f"I stop here: this turn has taken {len(recorded)} tool calls, which is my limit."
    if not clauses:
        return _capabilities(tools)
    path = ""
    for at, given in enumerate(clauses):
        value = next((finding.value for finding in reversed(findings) if finding.value), "")
        if is_too_long(given.text):
            decided: Wish | Finding = Finding(f"I read at most {LONGEST} characters of requests in a line.", done=False)
        else:
            clause = Clause(resolve_file(given.text, path), given.body, value)
            path = next((place.path for place in reversed(find_paths(clause.text))), path)
            decided = _replay(_plan(clause, tools, alone=len(clauses) == 1), recorded)
        if isinstance(decided, Wish):
            return decided
        findings.append(decided)
        if not decided.done:
            left = [f'"{later.text[:200]}"' for later in clauses[at + 1 :]]
            lines = [finding.text for finding in findings]
            return "\n".join([*lines, f"Not done because of that: {'; '.join(left)}."] if left else lines)
    return "\n".join(finding.text for finding in findings)


def _replay(plan: Plan, recorded: deque[tuple[str, Outcome]]) -> Wish | Finding:
    """Run a plan on what happened already; returns its first wish that has no outcome yet, or its finding."""
    try:
        wish = next(plan)
        while True:
            # Calls that another model made in this turn are none of this plan's; they are passed over.
            while recorded and recorded[0][0] != wish.tool:
                recorded.popleft()
            if not recorded:
                plan.close()
                return wish
            wish = plan.send(recorded.popleft()[1])
    except StopIteration as stop:
        finding: Finding = stop.value
        return finding


def _read_turn(messages: Sequence[Message]) -> tuple[str, deque[tuple[str, Outcome]]]:
    """Return the newest user messages and, in order, the calls made since with their outcomes."""
    last = max((at for at, message in enumerate(messages) if isinstance(message, UserMessage)), default=-1)
    first = last
    while first > 0 and isinstance(messages[first - 1], UserMessage):
        first -= 1
    texts = [message.text for message in messages[max(first, 0) : last + 1] if isinstance(message, UserMessage)]
    results = {message.call_id: message for message in messages[last + 1 :] if isinstance(message, ToolResult)}
    recorded: deque[tuple[str, Outcome]] = deque()
    for message in messages[last + 1 :]:
        for call in message.tool_calls if isinstance(message, AssistantMessage) else ():
            result = results.get(call.id)
            outcome = (
                Outcome(result.content, result.is_error) if result else Outcome("the call has no result", failed=True)
            )
            recorded.append((call.name, outcome))
    return "\n".join(texts), recorded


def _plan(clause: Clause, tools: Toolbox, *, alone: bool) -> Plan:
    named = named_tool(clause.text, tools)
    if named is not None:
        return _use([named], clause)
    for rule in _STRICT:
        plan = rule(clause, tools)
        if plan is not None:
            return plan
    if _GREETING.fullmatch(clause.text):
        return say("Hello. I am a rule-based offline model; ask me what I can do.")
    if _HELP.fullmatch(clause.text):
        return say(_capabilities(tools))
    ranked = rank(clause.text, [tool for tool in tools.values() if tool.name not in BUILT_IN])
    if ranked:
        return _use([tool for points, tool in ranked if points == ranked[0][0]], clause)
    for rule in _LOOSE:
        plan = rule(clause, tools)
        if plan is not None:
            return plan
    if _REMARK.match(clause.text) and not alone:
        return say(f'I made nothing of "{clause.text}".')
    return say(f'I cannot do "{clause.text}" with the tools I have. {_capabilities(tools)}', done=False)


def _use(candidates: Sequence[ToolSpec], clause: Clause) -> Plan:
    """Plan the call of the one tool that a clause means, or ask which one, or for what is missing."""
    filled = [(tool, *find_arguments(tool, clause)) for tool in candidates]
    ready = [entry for entry in filled if not entry[2]] or filled
    if len(ready) > 1:
        names = ", ".join(tool.name for tool, _, _ in ready)
        return say(f'Several tools fit "{clause.text}": {names}. Say which one to use.', done=False)
    tool, arguments, missing = ready[0]
    if missing:
        needed = " and ".join(_describe(parameter) for parameter in missing)
        example = ", ".join(f"{parameter.name}=..." for parameter in missing)
        return say(f"To use {tool.name} I need {needed}. Say, for example: {clause.text}, {example}", done=False)
    return _call(tool.name, arguments)


def _call(tool: str, arguments: dict[str, object]) -> Plan:
    outcome = yield Wish(tool, arguments)
    return failure(tool, outcome) if outcome.failed else Finding(f"{tool}: {outcome.text}", value=outcome.text)


def _describe(parameter: Parameter) -> str:
    kind = "one of " + ", ".join(map(str, parameter.choices)) if parameter.choices else parameter.kind
    return f"{parameter.name} ({kind}{': ' if parameter.description else ''}{parameter.description})"


def _capabilities(tools: Toolbox) -> str:
    if not tools:
        return "I am a rule-based offline model, not a language model, and I have no tools here."
    lines = [
        f"- {tool.name}: {tool.description.strip().splitlines()[0] if tool.description.strip() else ''}"
        for tool in tools.values()
    ]
    return "I am a rule-based offline model, not a language model. I can use these tools:\n" + "\n".join(lines)


def _call_id(request: ModelRequest, wish: Wish) -> str:
    seen = "\x1f".join(map(repr, request.messages))
    digest = sha256(f"{seen}\x1e{wish.tool}\x1e{encode_arguments(wish.arguments)}".encode("utf-8", "surrogatepass"))
    return "call_" + digest.hexdigest()[:20]
