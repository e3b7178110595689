"""Errors of models, tools, runs and readers of events."""

from __future__ import annotations

from sapwood.errors._root import SapwoodError


class ModelError(SapwoodError):
    """The model's provider failed; `retryable` says whether the same request may succeed later."""

    retryable = False

    def __init__(
        self, provider: str, problem: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{provider}: {problem}" + (f" (HTTP {status})" if status is not None else ""))
        self.provider = provider
        self.problem = problem
        self.status = status
        self.retry_after = retry_after


class ModelUnavailable(ModelError):
    """Connection lost, 5xx, overloaded, or a stalled or broken stream."""

    retryable = True


class RateLimited(ModelError):
    """The provider asked to slow down; `retry_after` is in seconds, if it said."""

    retryable = True


class ModelRefused(ModelError):
    """The provider refused the request itself: wrong key, model name, size or content."""


class ModelProtocolError(ModelError):
    """The provider answered something that is not its protocol, such as malformed JSON."""

    retryable = True


class ScriptExhausted(ModelError):
    """A scripted model was called once more than its script has steps; `script` names the script, if it has a name."""

    def __init__(self, provider: str, script: str, steps: int) -> None:
        which = f"the script {script}" if script else "the script"
        super().__init__(provider, f"{which} has {steps} steps and was called once more: add a step, or `then=`")
        self.script = script
        self.steps = steps


class RunFailed(SapwoodError):
    """The run that a message led to failed or was cancelled; what was journaled stays, and so does the conversation.

    Attributes:
        agent_id: The agent.
        outcome: `failed` or `cancelled`.
        reason: Why, in words; may be empty.
        cause: Why it failed, for code: `model`, `refused`, `limit`, `not_called` or `error`; else empty.
    """

    def __init__(self, agent_id: str, outcome: str, reason: str, cause: str = "") -> None:
        super().__init__(f"the run of {agent_id!r} was not completed: {outcome}" + (f" ({reason})" if reason else ""))
        self.agent_id = agent_id
        self.outcome = outcome
        self.reason = reason
        self.cause = cause


class SubscriptionLagged(SapwoodError):
    """A reader of events was so slow that it was cut off; subscribe again to go on.

    Attributes:
        agent_id: The agent.
        seq: Number of the agent's last event.
    """

    def __init__(self, agent_id: str, seq: int) -> None:
        super().__init__(f"this reader of the events of {agent_id!r} fell too far behind (at {seq}); subscribe again")
        self.agent_id = agent_id
        self.seq = seq


class ToolError(SapwoodError):
    """Raised by a tool to tell the model what went wrong; the text goes to the model as an error result."""
