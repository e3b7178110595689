"""The parameters of a tool, as its JSON schema tells them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import attrs

from sapwood.conversation import ToolSpec
from sapwood.models._offline_choice import name_words
from sapwood.models._offline_quantities import unit_of


@attrs.frozen
class Parameter:
    """One parameter of a tool as its JSON schema tells it."""

    name: str
    kind: str
    required: bool
    description: str = ""
    choices: tuple[Any, ...] = ()
    items: str = "string"

    @property
    def words(self) -> list[str]:
        """The words of its name."""
        return name_words(self.name) or [self.name.lower()]

    @property
    def unit(self) -> str:
        """The unit that its name or description says it counts in, or an empty text."""
        told = re.search(r"\bin (?:us |u\.s\. )?(\w+)", self.description, re.IGNORECASE)
        return unit_of(self.words) or unit_of([told.group(1)] if told else [])

    @property
    def pattern(self) -> str:
        """A regular expression for what a request may call it."""
        spaced = r"[\s_-]+".join(map(re.escape, self.words))
        names = [re.escape(self.name), spaced]
        if len(self.words) > 1 and self.words[-1] in ("id", "number", "name", "code"):
            names.append(r"[\s_-]+".join(map(re.escape, self.words[:-1])))
        return rf"(?<![\w-])(?:{'|'.join(names)})(?![\w])"


def parameters_of(tool: ToolSpec) -> list[Parameter]:
    """Return the parameters of a tool in order."""
    required = set(tool.parameters.get("required", ()))
    found: list[Parameter] = []
    for name, given in tool.parameters.get("properties", {}).items():
        schema = _resolve(given, tool.parameters)
        choices = tuple(schema.get("enum", ())) or ((schema["const"],) if "const" in schema else ())
        items = _resolve(schema.get("items", {}), tool.parameters).get("type", "string")
        kind = str(schema.get("type", "string"))
        described = schema.get("description") or _told_of(name, tool.description)
        found.append(Parameter(name, kind, name in required, str(described), choices, str(items)))
    return found


def _resolve(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    given = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    reference = given.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for step in reference[2:].split("/"):
            target = cast("dict[str, Any]", target).get(step, {}) if isinstance(target, dict) else {}
        return cast("dict[str, Any]", target) if isinstance(target, dict) else {}
    options = [_resolve(option, root) for option in given.get("anyOf", given.get("oneOf", ()))]
    chosen = next((option for option in options if option.get("type") != "null"), dict[str, Any]())
    made = {**chosen, **given}
    if isinstance(made.get("type"), list):
        made["type"] = next((kind for kind in made["type"] if kind != "null"), "string")
    return made


def _told_of(name: str, description: str) -> str:
    told = re.search(rf"\b{re.escape(name)}:\s*([^.\n]+)", description)
    return told.group(1).strip() if told else ""
