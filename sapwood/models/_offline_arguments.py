"""Arguments for any tool, found in a request by the names and types of the tool's JSON schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from sapwood.conversation import ToolSpec
from sapwood.models._offline_choice import name_words, stem
from sapwood.models._offline_parameters import Parameter, parameters_of
from sapwood.models._offline_plan import PATH, QUOTED, Clause, mask, quoted, refers_back, unquote
from sapwood.models._offline_quantities import Quantity, find_quantities
from sapwood.models._offline_values import (
    AFTER,
    CODE,
    DATE,
    EMAIL,
    LEADS,
    LITTLE,
    TRUE,
    URL,
    VALUE,
    convert,
    is_free,
    whole,
)


def find_arguments(tool: ToolSpec, clause: Clause) -> tuple[dict[str, Any], list[Parameter]]:
    """Return the arguments for a tool that a request holds, and the required parameters that it does not."""
    return _Search(tool, clause).run()


class _Search:
    def __init__(self, tool: ToolSpec, clause: Clause) -> None:
        self.tool = tool
        self.clause = clause
        self.text = clause.text
        self.blotted = mask(clause.text)
        self.parameters = parameters_of(tool)
        self.found: dict[str, Any] = {}
        self.used: list[tuple[int, int]] = []

    def run(self) -> tuple[dict[str, Any], list[Parameter]]:
        self._take_object()
        for find in (self._assigned, self._beside, self._counted, self._chosen, self._after_preposition):
            for parameter in self._open():
                find(parameter)
        for parameter in self._open():
            if parameter.required:
                self._by_type(parameter)
        self._single_left_over()
        self._by_remainder()
        return self.found, [p for p in self._open() if p.required]

    def _open(self) -> Iterator[Parameter]:
        """Parameters without a value, the required ones first."""
        ordered = sorted(self.parameters, key=lambda parameter: not parameter.required)
        return (parameter for parameter in ordered if parameter.name not in self.found)

    def _take_object(self) -> None:
        start, end = self.text.find("{"), self.text.rfind("}")
        if start < 0 or end < start:
            return
        try:
            given = json.loads(self.text[start : end + 1])
        except (ValueError, RecursionError):
            return
        names = {parameter.name for parameter in self.parameters}
        if isinstance(given, dict) and set(cast("dict[str, Any]", given)) <= names:
            self.found |= cast("dict[str, Any]", given)
            self.used.append((start, end + 1))

    def _assigned(self, parameter: Parameter) -> None:
        for hit in re.finditer(
            rf"{parameter.pattern}\s*(?:=|:(?!//))\s*(\[[^\]]*\]|{VALUE})", self.text, re.IGNORECASE | re.DOTALL
        ):
            self._store(parameter, hit.group(1), *hit.span())

    def _beside(self, parameter: Parameter) -> None:
        if parameter.kind == "boolean":
            self._flag(parameter)
            return
        if is_free(parameter):
            hit = re.search(
                rf"{parameter.pattern}\s+(?:is\s+|saying\s+|of\s+)?(.+)$", self.text, re.IGNORECASE | re.DOTALL
            )
            if hit and self.text[: hit.start()].strip() and not quoted(hit.group(1)):
                self._store(parameter, re.split(r",? (?:with|and) \w+[ =:]", hit.group(1))[0], *hit.span())
                return
        link = r"\s+(?:(?:is|of|to|number|no\.?|named|called|as|the)\s+)*#?"
        for hit in re.finditer(rf"{parameter.pattern}s?{link}({VALUE})", self.text, re.IGNORECASE):
            plain = hit.group(1).strip(".,;:!?")
            if plain.lower() not in LITTLE:
                self._store(parameter, hit.group(1), *hit.span())
        if parameter.kind in ("integer", "number") and parameter.name not in self.found:
            for quantity in self._quantities():
                if re.match(
                    rf"\s+{parameter.pattern.replace('(?![', 's?(?![')}", self.text[quantity.end :], re.IGNORECASE
                ):
                    self._store_quantity(parameter, quantity)
                    return

    def _flag(self, parameter: Parameter) -> None:
        hit = re.search(
            rf"(\b(?:no|not|without|don't)\s+)?{parameter.pattern}(?:\s*=?\s*(true|false|yes|no|on|off)\b)?",
            self.blotted,
            re.IGNORECASE,
        )
        if hit and parameter.words[0] not in LITTLE:
            self.found[parameter.name] = not hit.group(1) and (hit.group(2) or "true").lower() in TRUE
            self.used.append(hit.span())

    def _counted(self, parameter: Parameter) -> None:
        if parameter.kind in ("integer", "number") and parameter.unit:
            for quantity in self._quantities():
                if quantity.unit and quantity.as_unit(parameter.unit) is not None:
                    self._store_quantity(parameter, quantity)
                    return

    def _chosen(self, parameter: Parameter) -> None:
        for choice in parameter.choices:
            hit = re.search(rf"(?<!\w){re.escape(str(choice)).replace('_', '[ _]')}(?!\w)", self.text, re.IGNORECASE)
            if hit and self._free(*hit.span()):
                self.found[parameter.name] = choice
                self.used.append(hit.span())
                return

    def _after_preposition(self, parameter: Parameter) -> None:
        if parameter.kind != "string" or parameter.choices:
            return
        for words, names in AFTER.items():
            if not names & set(parameter.words):
                continue
            value = rf"{QUOTED.pattern}|{EMAIL.pattern}|[A-Z][\w-]*(?: [A-Z][\w-]*)*|[\w.-]*\w"
            for hit in re.finditer(rf"\b(?i:{words}) (?:the )?({value})", self.text):
                if hit.group(1).lower() not in LITTLE and self._free(*hit.span()):
                    self._store(parameter, hit.group(1), *hit.span())
                    break

    def _by_type(self, parameter: Parameter) -> None:
        match parameter.kind:
            case "integer" | "number":
                for quantity in self._quantities():
                    if self._store_quantity(parameter, quantity):
                        return
            case "array" if parameter.items in ("integer", "number"):
                numbers = [whole(quantity.number) for quantity in self._quantities()]
                if numbers:
                    self.found[parameter.name] = numbers
                    self.used += [(quantity.start, quantity.end) for quantity in self._quantities()]
            case "array":
                texts = [unquote(hit) for hit in QUOTED.finditer(self.text) if self._free(*hit.span())]
                if texts and parameter.items == "string":
                    self.found[parameter.name] = texts
                    self.used += [hit.span() for hit in QUOTED.finditer(self.text)]
            case "string":
                self._text_by_type(parameter)
            case _:
                return

    def _text_by_type(self, parameter: Parameter) -> None:
        words = set(parameter.words)
        patterns = [QUOTED]
        if words & {"email", "mail", "recipient", "to"}:
            patterns.insert(0, EMAIL)
        if words & {"url", "link", "website", "page"}:
            patterns.insert(0, URL)
        if words & {"path", "file", "filename"}:
            patterns.insert(0, PATH)
        if words & {"date", "day", "when"}:
            patterns.insert(0, DATE)
        if words & {"id", "order", "number", "code", "key", "ticket", "account", "invoice", "sku", "reference"}:
            patterns.append(CODE)
        for pattern in patterns:
            for hit in pattern.finditer(self.text):
                if self._free(*hit.span()):
                    self._store(parameter, hit.group(), *hit.span())
                    return
        if (
            self.clause.value
            and is_free(parameter)
            and re.search(r"\b(?:it|that|this|the \w+)\b", self.blotted, re.IGNORECASE)
        ):
            self.found[parameter.name] = self.clause.value

    def _single_left_over(self) -> None:
        numeric = [p for p in self._open() if p.kind in ("integer", "number")]
        quantities = self._quantities()
        if len(numeric) == 1 and len(quantities) == 1:
            self._store_quantity(numeric[0], quantities[0])

    def _by_remainder(self) -> None:
        missing = [p for p in self._open() if p.required]
        if len(missing) != 1 or missing[0].kind != "string" or missing[0].choices:
            return
        only = sum(parameter.required for parameter in self.parameters) == 1
        if not (is_free(missing[0]) or only):
            return
        rest = self._remainder()
        if rest:
            self.found[missing[0].name] = self.clause.value if refers_back(rest) and self.clause.value else rest

    def _remainder(self) -> str:
        if self.clause.body:
            return self.clause.body
        kept = "".join(
            " \0 " if any(a <= at < b for a, b in self.used) else letter for at, letter in enumerate(self.text)
        )
        kept = re.sub(r"(?:\s*\0\s*)+", " \0 ", kept)
        longest = max(kept.split("\0"), key=lambda part: len(part.strip()))
        named = {stem(word) for word in name_words(self.tool.name)}
        words = longest.split()
        tidy = [word.strip(":,").lower() for word in words]
        first = 0
        while first < len(words) and (tidy[first] in LITTLE or tidy[first] in LEADS or stem(tidy[first]) in named):
            first += 1
        last = len(words)
        while last > first and tidy[last - 1] in LITTLE:
            last -= 1
        return " ".join(words[first:last]).strip(" :?")

    def _quantities(self) -> list[Quantity]:
        return [quantity for quantity in find_quantities(self.blotted) if self._free(quantity.start, quantity.end)]

    def _free(self, start: int, end: int) -> bool:
        return all(end <= a or start >= b for a, b in self.used)

    def _store_quantity(self, parameter: Parameter, quantity: Quantity) -> bool:
        number = quantity.as_unit(parameter.unit)
        if number is None or (parameter.kind == "integer" and number != number.to_integral_value()):
            return False
        self.found[parameter.name] = whole(number)
        self.used.append((quantity.start, quantity.end))
        return True

    def _store(self, parameter: Parameter, raw: str, start: int, end: int) -> None:
        if parameter.name in self.found or not self._free(start, end):
            return
        quote = QUOTED.fullmatch(raw)
        value = convert(parameter, unquote(quote) if quote else raw.strip().rstrip(".,;:!?").removeprefix("#"))
        if value is None:
            return
        if parameter.kind in ("integer", "number"):
            quantity = next((q for q in self._quantities() if start <= q.start < end), None)
            if quantity is not None:
                self._store_quantity(parameter, quantity)
            return
        self.found[parameter.name] = value
        self.used.append((start, end))
