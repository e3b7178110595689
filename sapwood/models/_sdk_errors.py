"""Errors of the providers' SDKs, turned into `ModelError`s; the tables say what counts as what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, cast

import attrs

from sapwood.errors import ModelError, ModelProtocolError, ModelRefused, ModelUnavailable, RateLimited
from sapwood.models._surrogates import clean_text

_BY_STATUS: dict[int, type[ModelError]] = {
    408: ModelUnavailable,
    409: ModelUnavailable,
    425: ModelUnavailable,
    429: RateLimited,
}
"""Statuses that differ from their hundred: 4xx is refused, 5xx (529 too) unavailable, anything else no protocol."""

_BY_KIND: dict[str, type[ModelError]] = {
    "overloaded_error": ModelUnavailable,
    "api_error": ModelUnavailable,
    "timeout_error": ModelUnavailable,
    "server_error": ModelUnavailable,
    "rate_limit_error": RateLimited,
    "rate_limit_exceeded": RateLimited,
    "insufficient_quota": ModelRefused,
    "invalid_request_error": ModelRefused,
    "authentication_error": ModelRefused,
    "permission_error": ModelRefused,
    "billing_error": ModelRefused,
    "not_found_error": ModelRefused,
    "request_too_large": ModelRefused,
}
"""Kinds that a provider names in the body; they count where the status does not decide: in a stream, and in a 429."""

_BY_CLASS: dict[str, type[ModelError]] = {
    "UnsupportedProtocol": ModelRefused,
    "InvalidURL": ModelRefused,
    "DecodingError": ModelProtocolError,
    "TransportError": ModelUnavailable,
    "APIConnectionError": ModelUnavailable,
    "OSError": ModelUnavailable,
    "APIResponseValidationError": ModelProtocolError,
    "APIError": ModelUnavailable,
    "ValueError": ModelProtocolError,
}
"""Errors without a status, by the names of their class and its bases; the first name in this order wins."""

_LONGEST = 300


@attrs.frozen
class ErrorReader:
    """Reads errors of one provider.

    Attributes:
        provider: Name for the messages.
        secret: The API key; it is struck out of every text (a provider may repeat it in its error).
    """

    provider: str
    secret: str = attrs.field(repr=False)

    def read(self, error: Exception, *, wall: float) -> ModelError:
        """Return the `ModelError` that stands for an SDK's error.

        Args:
            error: What the SDK raised.
            wall: Seconds since 1970, for a `Retry-After` that is a date.
        """
        response: Any = getattr(error, "response", None)
        status = getattr(error, "status_code", None)
        body: object = getattr(error, "body", None)
        headers = cast("Mapping[str, str]", getattr(response, "headers", None) or {})
        kind = _BY_KIND.get(error_kind(body))
        if not isinstance(status, int) or status == 200:
            made = kind or _by_class(error)
        else:
            made = kind if kind is not None and status == 429 else _by_status(status)
        return self.make(
            made,
            error_message(body) or _text_of(error),
            status=status if isinstance(status, int) and status != 200 else None,
            retry_after=parse_retry_after(headers, wall=wall),
        )

    def read_body(self, body: object) -> ModelError:
        """Return the `ModelError` for an error that came as an event of a stream."""
        return self.make(_BY_KIND.get(error_kind(body), ModelUnavailable), error_message(body) or "error in the stream")

    def make(
        self, made: type[ModelError], problem: str, *, status: int | None = None, retry_after: float | None = None
    ) -> ModelError:
        """Return an error whose text holds no secret and fits on one line."""
        if self.secret:
            problem = problem.replace(self.secret, "***")
        problem = " ".join(clean_text(problem).split())
        if len(problem) > _LONGEST:
            problem = problem[:_LONGEST] + "..."
        return made(self.provider, problem, status=status, retry_after=retry_after)


def parse_retry_after(headers: Mapping[str, str], *, wall: float) -> float | None:
    """Return the seconds that a provider asks to wait, or None if it does not say so in a readable way.

    Understood are `retry-after-ms`, and `retry-after` as seconds or as an HTTP date. A date in the past is 0.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - wall)
    except (ValueError, OverflowError):
        return None


def error_kind(body: object) -> str:
    """Return what the provider calls the error, or an empty text."""
    for field in ("code", "type"):
        kind = _error_of(body).get(field)
        if isinstance(kind, str) and kind in _BY_KIND:
            return kind
    return ""


def error_message(body: object) -> str:
    """Return the provider's own words, or an empty text."""
    message = _error_of(body).get("message")
    return message if isinstance(message, str) else ""


def _error_of(body: object) -> Mapping[str, object]:
    if not isinstance(body, Mapping):
        return {}
    fields = cast("Mapping[str, object]", body)
    inner = fields.get("error")
    return cast("Mapping[str, object]", inner) if isinstance(inner, Mapping) else fields


def _by_status(status: int) -> type[ModelError]:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return {4: ModelRefused, 5: ModelUnavailable}.get(status // 100, ModelProtocolError)


def _by_class(error: Exception) -> type[ModelError]:
    if isinstance(error, ExceptionGroup):
        return ModelUnavailable
    names = {cls.__name__ for cls in type(error).__mro__}
    return next((made for name, made in _BY_CLASS.items() if name in names), ModelProtocolError)


def _text_of(error: Exception) -> str:
    # The SDKs say only "Connection error."; the reason is the error below.
    below = error.__cause__
    text = str(below) if type(error).__name__ in ("APIConnectionError", "APITimeoutError") and below else str(error)
    return text or type(below or error).__name__
