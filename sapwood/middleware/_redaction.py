"""Redaction: what never goes into a log."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

HIDDEN: Final = "[hidden]"

SECRET_NAMES: Final = re.compile(
    r"password|passwd|passphrase|pass$|secret|token$|api_?key|access_?key|private_?key|authorization|credential|cookie|session_?id"
    r"|^auth$|^pin$|^cvv$|^iban$|card_?number",
    re.IGNORECASE,
)
"""Names of values that are hidden, wherever in the name the pattern is found; `-` and blanks count as `_`."""

SECRET_TEXTS: Final = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|xox[abprs]|AKIA|ASIA|AIza|glpat|hf)[-_]?[A-Za-z0-9_\-]{12,}"
    r"|\bBearer\s+[A-Za-z0-9._~+/\-]{8,}=*"
    r"|(?i:\bbearer\s+(?=\S*\d)[A-Za-z0-9._~+/\-]{8,}=*)"
    r"|(?i:(?<=authorization: )basic\s+[A-Za-z0-9+/]{4,}=*)"
    r"|\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|(?<=://)[^/\s:@]*:[^/\s]+(?=@)",
    re.DOTALL,
)
"""Keys of providers, bearer, basic and JSON web tokens, private keys, and user:password in addresses."""

SHOWN_CHARACTERS: Final = 500


def redact_text(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """Return the text without anything that looks like a secret, or in JSON is named like one, cut to a length."""
    shown = SECRET_TEXTS.sub(HIDDEN, _redact_json(text))
    return shown if len(shown) <= limit else f"{shown[:limit]}... ({len(text)} characters)"


def redact(value: Any, limit: int = SHOWN_CHARACTERS) -> Any:
    """Return a JSON-like value with everything hidden that is named, or looks, like a secret."""
    match value:
        case str():
            return redact_text(value, limit)
        case Mapping():
            mapping = cast("Mapping[Any, Any]", value)
            return {str(key): HIDDEN if _is_secret(str(key)) else redact(each, limit) for key, each in mapping.items()}
        case list() | tuple():
            return [redact(each, limit) for each in cast("list[Any]", value)]
        case None | bool() | int() | float():
            return value
        case _:
            return f"<{type(value).__qualname__}>"


def _redact_json(text: str) -> str:
    """Return a text that is a JSON object or list without values that are named like a secret; any other as it is."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        value: object = json.loads(text)
        hidden: object = redact(value, len(text))
    except ValueError:
        return text
    except RecursionError:
        return HIDDEN
    return text if hidden == value else json.dumps(hidden, ensure_ascii=False)


def _is_secret(name: str) -> bool:
    return SECRET_NAMES.search(re.sub(r"[-\s]", "_", name)) is not None
