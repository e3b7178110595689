"""Partial JSON: what is certain of a document that is still arriving, for live views of tool arguments (BR-67)."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

import attrs

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[a-z]+")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_MAX_DEPTH = 200


@attrs.frozen
class PartialJson:
    """What a prefix of a JSON document holds.

    Attributes:
        value: The document as far as it is certain; None if nothing is yet. As the prefix grows the value only grows:
            texts and lists get longer, objects get more keys, nothing vanishes or turns into something else.
        complete: Whether the document is whole. Only then is `value` the document, and even then a tool runs only
            with strictly parsed arguments.
    """

    value: Any
    complete: bool


def parse_partial_json(data: str | bytes) -> PartialJson:
    """Read as much as is certain of a prefix of a JSON document; never raises.

    Held back until they are whole: an escape or a UTF-8 character that is cut in two, the first half of a surrogate
    pair, numbers (until the character after them), `true`, `false`, `null`, and keys without a value. Reading stops
    for good at the first character that no JSON document can have there, and at a nesting of 200.
    """
    if isinstance(data, bytes):
        data = codecs.getincrementaldecoder("utf-8")("replace").decode(data)
    reader = _Reader(data)
    try:
        value, whole = reader.read_value(0)
    except _Stop:
        return PartialJson(None, complete=False)
    return PartialJson(value, whole and reader.at_end())


class _Stop(Exception):
    """Nothing certain can be read from here on."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def at_end(self) -> bool:
        self._skip_space()
        return self.at == len(self.text)

    def read_value(self, depth: int) -> tuple[Any, bool]:
        """Return the value here and whether it is whole; raises _Stop if not even its beginning is certain."""
        self._skip_space()
        match self._peek():
            case "{" if depth < _MAX_DEPTH:
                return self._read_object(depth)
            case "[" if depth < _MAX_DEPTH:
                return self._read_array(depth)
            case '"':
                return self._read_text()
            case _:
                return self._read_scalar(), True

    def _read_object(self, depth: int) -> tuple[dict[str, Any], bool]:
        found: dict[str, Any] = {}
        self.at += 1
        if self._take("}"):
            return found, True
        while True:
            try:
                self._skip_space()
                if self._peek() != '"':
                    return found, False
                key, whole = self._read_text()
                if not whole or not self._take(":"):
                    return found, False
                found[key], whole = self.read_value(depth + 1)
            except _Stop:
                return found, False
            if not whole or not self._take(","):
                return found, whole and self._take("}")

    def _read_array(self, depth: int) -> tuple[list[Any], bool]:
        found: list[Any] = []
        self.at += 1
        if self._take("]"):
            return found, True
        while True:
            try:
                value, whole = self.read_value(depth + 1)
            except _Stop:
                return found, False
            found.append(value)
            if not whole or not self._take(","):
                return found, whole and self._take("]")

    def _read_text(self) -> tuple[str, bool]:
        parts: list[str] = []
        self.at += 1
        while True:
            plain = _PLAIN.match(self.text, self.at)
            if plain:
                parts.append(plain.group())
                self.at = plain.end()
            if self._peek() == '"':
                self.at += 1
                return "".join(parts), True
            escape = self._read_escape() if self._peek() == "\\" else None
            if escape is None:
                return "".join(parts), False
            parts.append(escape)

    def _read_escape(self) -> str | None:
        simple = _ESCAPES.get(self.text[self.at + 1 : self.at + 2])
        if simple is not None:
            self.at += 2
            return simple
        code = self._code_unit(self.at)
        if code is None:
            return None
        if not 0xD800 <= code < 0xDC00:
            self.at += 6
            return "\ufffd" if 0xDC00 <= code < 0xE000 else chr(code)
        low = self._code_unit(self.at + 6)
        if low is not None and 0xDC00 <= low < 0xE000:
            self.at += 12
            return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
        rest = self.text[self.at + 6 : self.at + 12]
        if low is None and ("\\u".startswith(rest[:2]) and len(rest) < 6):
            return None
        self.at += 6
        return "\ufffd"

    def _code_unit(self, at: int) -> int | None:
        digits = _HEX.match(self.text, at + 2) if self.text.startswith("\\u", at) else None
        return int(digits.group(), 16) if digits else None

    def _read_scalar(self) -> Any:
        found = _WORD.match(self.text, self.at) or _NUMBER.match(self.text, self.at)
        # A number or word that ends with the text may go on; it counts only with something after it.
        if found is None or found.end() == len(self.text):
            raise _Stop
        token = found.group()
        if token not in _WORDS and (token[0].isalpha() or self.text[found.end()] not in ",]} \t\n\r"):
            raise _Stop
        self.at = found.end()
        try:
            return _WORDS[token] if token in _WORDS else json.loads(token)
        except ValueError:
            raise _Stop from None

    def _skip_space(self) -> None:
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self, character: str) -> bool:
        self._skip_space()
        if self._peek() == character:
            self.at += 1
            return True
        return False
