"""What the packages say is public, against what is there."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_type_hints

import attrs
import pytest
from source_rules import (
    PUBLISH_CALL,
    PUBLISH_IMPORT,
    ROOT,
    Reexport,
    public_packages,
    reexports,
    strangers_in_init,
)

from sapwood._public import publish

PACKAGES = public_packages()


def init_of(package: str) -> str:
    return ROOT.joinpath(*package.split("."), "__init__.py").read_text(encoding="utf-8")


def public_objects(package: str) -> dict[str, Any]:
    """Return the classes and functions that the package re-exports from below itself."""
    module = importlib.import_module(package)
    named = {entry.name: getattr(module, entry.name) for entry in reexports(init_of(package))}
    return {name: value for name, value in named.items() if isinstance(value, type | FunctionType)}


@pytest.mark.parametrize("package", PACKAGES)
def test_an_init_re_exports_each_name_under_its_own_name_and_it_exists(package: str) -> None:
    module = importlib.import_module(package)
    entries = reexports(init_of(package))

    renamed = [entry for entry in entries if entry.alias != entry.name]
    assert not renamed, f"write `from module import X as X` in {package}/__init__.py"
    assert [entry for entry in entries if not hasattr(module, entry.name)] == []
    assert len({entry.name for entry in entries}) == len(entries), f"{package}/__init__.py exports a name twice"


@pytest.mark.parametrize("package", PACKAGES)
def test_an_init_holds_a_docstring_and_re_exports_and_nothing_else(package: str) -> None:
    assert strangers_in_init(init_of(package)) == []
    assert any(character.isalpha() for character in importlib.import_module(package).__doc__ or ""), (
        f"{package}/__init__.py needs a docstring that says what the package is"
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_takes_names_only_from_below_itself_or_from_public_modules(package: str) -> None:
    foreign = [
        entry
        for entry in reexports(init_of(package))
        if not entry.module.startswith(f"{package}.") and any(part.startswith("_") for part in entry.module.split("."))
    ]
    assert foreign == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_class_and_function_has_a_docstring(package: str) -> None:
    assert [name for name, value in public_objects(package).items() if not (value.__doc__)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_module_of_every_public_object_is_its_public_path(package: str) -> None:
    private = {
        name: value.__module__
        for name, value in public_objects(package).items()
        if any(part.startswith("_") for part in value.__module__.split("."))
    }
    assert private == {}, f"end {package}/__init__.py with:\n{PUBLISH_IMPORT}\n{PUBLISH_CALL}"


@pytest.mark.parametrize("package", PACKAGES)
def test_annotations_of_stored_classes_resolve_under_the_public_path(package: str) -> None:
    def cannot_resolve(value: type) -> str:
        try:
            get_type_hints(value)
        except NameError as error:
            return str(error)
        return ""

    stored = {name: value for name, value in public_objects(package).items() if hasattr(value, "__wire__")}
    assert {name: problem for name, value in stored.items() if (problem := cannot_resolve(value))} == {}


class TestPublish:
    @pytest.fixture
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
        folder = tmp_path / "published"
        folder.mkdir()
        (folder / "_shapes.py").write_text(
            "from __future__ import annotations\n"
            "from decimal import Decimal\n"
            "import attrs\n"
            "@attrs.frozen\n"
            "class Square:\n"
            "    side: Decimal\n"
            "    twin: Square | None = None\n"
            "class Shelf:\n"
            "    first: OnlyForCheckers\n"
            "def area(square: Square) -> Decimal:\n"
            "    return square.side ** 2\n"
        )
        (folder / "__init__.py").write_text(
            "from published._shapes import Shelf as Shelf\n"
            "from published._shapes import Square as Square\n"
            "from published._shapes import area as area\n"
            "from sapwood._public import publish as _publish\n"
            "_publish(globals())\n"
        )
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        yield importlib.import_module("published")
        for name in ("published", "published._shapes"):
            del sys.modules[name]

    def test_classes_and_functions_of_private_modules_get_the_public_path(self, package: ModuleType) -> None:
        assert package.Square.__module__ == "published"
        assert package.area.__module__ == "published"

    def test_annotations_still_resolve_though_the_public_path_lacks_their_names(self, package: ModuleType) -> None:
        assert get_type_hints(package.Square)["side"] is Decimal
        assert attrs.fields(attrs.resolve_types(package.Square)).side.type is Decimal

    def test_an_annotation_that_cannot_resolve_is_left_as_it_is(self, package: ModuleType) -> None:
        assert package.Shelf.__module__ == "published"
        assert package.Shelf.__annotations__ == {"first": "OnlyForCheckers"}

    def test_an_instance_survives_pickling_under_the_public_path(self, package: ModuleType) -> None:
        square = package.Square(3)

        pickled = pickle.dumps(square)

        assert b"_shapes" not in pickled
        assert pickle.loads(pickled) == square

    def test_what_another_package_published_keeps_its_path(self) -> None:
        namespace = {"__name__": "elsewhere", "RowError": Reexport, "getdoc": inspect.getdoc}

        publish(namespace)

        assert Reexport.__module__ == "source_rules"
        assert inspect.getdoc.__module__ == "inspect"
