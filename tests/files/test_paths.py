"""The one function that decides which paths exist, and the rules beside it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.errors import InvalidPath, InvalidPattern
from sapwood.files import DenyRules, FilePath, normalise
from sapwood.files._paths import PathIndex, caseless_key, parents


@pytest.mark.parametrize(
    ("given_path", "expected"),
    [
        ("notes/todo.md", "notes/todo.md"),
        ("/notes/todo.md", "notes/todo.md"),
        ("a", "a"),
        (".env", ".env"),
        ("...x", "...x"),
        ("a b/c d", "a b/c d"),
        ("backup~", "backup~"),
        ("console.log", "console.log"),
        ("e\u0301/u\u0308bung", "\xe9/\xfcbung"),
        ("\u212b", "\xc5"),
        ("日本/語.txt", "日本/語.txt"),
        ("x" * 255, "x" * 255),
        ("/".join(["y" * 203] * 5) + "/zzzz", "/".join(["y" * 203] * 5) + "/zzzz"),
    ],
)
def test_an_allowed_path_has_one_spelling_in_normal_form_c(given_path: str, expected: str) -> None:
    assert normalise(given_path) == expected


@pytest.mark.row("BR-37", "BR-38")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "empty"),
        ("/", "empty"),
        ("//etc/passwd", "empty segment"),
        ("a//b", "empty segment"),
        ("notes/", "empty segment"),
        ("..", r"'\.\.' segment"),
        ("../secret", r"'\.\.' segment"),
        ("sub/../.eNv", r"'\.\.' segment"),
        ("./a", r"'\.' segment"),
        ("~/.ssh/id_rsa", "~"),
        ("a/~root", "~"),
        ("C:/Windows", "drive letter"),
        ("c:", "drive letter"),
        ("..\\secret", "backslash"),
        ("a\0b", r"control character, U\+0000"),
        ("a\nb", r"control character, U\+000A"),
        ("a\x7fb", "control character"),
        ("a\x85b", "control character"),
        (".env ", "blank"),
        (" a", "blank"),
        ("a /b", "blank"),
        ("a\xa0", "blank"),
        ("a.", "ends with a dot"),
        ("a./b", "ends with a dot"),
        ("...", "ends with a dot"),
        ("CON", "device name"),
        ("a/nul.txt", "device name"),
        ("Com1", "device name"),
        ("lpt\xb9.log", "device name"),
        ("aux .txt", "device name"),
        (".sapwood/versions.jsonl", "reserved"),
        ("a/.SAPWOOD-x", "reserved"),
        (".\u017fapwood/x", "reserved"),
        ("a\u202etxt.exe", r"invisible formatting character, U\+202E"),
        ("a\u200db", r"U\+200D"),
        ("a\u200bb", r"U\+200B"),
        ("\ufeffa", r"U\+FEFF"),
        ("a\u00adb", r"U\+00AD"),
        ("a\ufe0fb", "invisible character"),
        ("a\u3164", "invisible character"),
        ("a\u2028b", "line separator"),
        ("a\ud800b", "lone surrogate"),
        ("\udcff", "U.DCFF"),
        ("a\ufffeb", "unassigned"),
        ("x" * 256, "256 bytes"),
        ("\xe9" * 128, "256 bytes"),
        ("/".join(["y" * 204] * 5) + "/z", "1026 bytes"),
        ("a" * 1_000_000, "characters long"),
    ],
)
def test_a_path_that_could_leave_or_deceive_is_refused_with_the_reason(path: str, reason: str) -> None:
    with pytest.raises(InvalidPath, match=reason) as caught:
        normalise(path)
    assert caught.value.path == path
    assert len(str(caught.value)) < 2000


def test_what_is_no_text_is_refused_by_its_type() -> None:
    with pytest.raises(InvalidPath, match="expected a path as text; got bytes"):
        normalise(b"notes.md")  # type: ignore[arg-type]


@given(st.text(max_size=60))
def test_normalising_twice_changes_nothing_and_never_leaves_the_root(text: str) -> None:
    try:
        path = normalise(text)
    except InvalidPath:
        return
    assert normalise(path) == path
    assert normalise(unicodedata.normalize("NFD", path)) == path
    assert not path.startswith("/")
    assert not {"", ".", ".."} & set(path.split("/"))


@pytest.mark.row("BR-37")
def test_one_caseless_key_covers_every_case_mapping_of_unicode() -> None:
    for number in range(0x110000):
        if 0xD800 <= number < 0xE000:
            continue
        character = chr(number)
        key = caseless_key(character)
        for form in (character.upper(), character.lower(), character.casefold(), character.swapcase()):
            assert caseless_key(form) == key, f"U+{number:04X}"


DENIED = [".env", ".ssh/**", "**/*.pem", "/private", "build*/"]


@pytest.mark.row("BR-37")
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        (".env", ".env"),
        (".ENV", ".env"),
        ("deep/er/.Env", ".env"),
        (".env/x", ".env"),
        (".Ssh/id_rsa", ".ssh/**"),
        (".\u017fsh/id_rsa", ".ssh/**"),
        (".SSH/a/b", ".ssh/**"),
        ("keys/SERVER.PEM", "**/*.pem"),
        ("server.pem", "**/*.pem"),
        ("Private", "/private"),
        ("private/a", "/private"),
        ("x/Build-1/a", "build*/"),
        ("a/private", None),
        ("a/.ssh/id_rsa", None),
        (".environment", None),
        ("server.pem.txt", None),
    ],
)
def test_a_deny_rule_holds_for_every_spelling_and_everything_below(path: str, rule: str | None) -> None:
    assert DenyRules(DENIED).match(normalise(path)) == rule


@pytest.mark.row("BR-38")
def test_a_deny_rule_holds_in_either_normal_form() -> None:
    for rule in ("*.\xe9", "*.e\u0301", "*.\xc9"):
        assert DenyRules([rule]).match(normalise("x.e\u0301")) == rule


def test_deny_rules_written_as_one_text_are_not_taken_letter_by_letter() -> None:
    with pytest.raises(InvalidPattern, match="several rules are expected"):
        DenyRules(".env")


@pytest.mark.parametrize("rule", ["", "/", "a/../b", "[a"])
def test_a_deny_rule_that_means_nothing_is_refused(rule: str) -> None:
    with pytest.raises(InvalidPattern):
        DenyRules([rule])


@pytest.mark.parametrize(
    ("existing", "new", "problem"),
    [
        ("notes.txt", "Notes.txt", "differs only by case from 'notes.txt'"),
        ("stra\xdfe", "STRASSE", "differs only by case"),
        ("Notes/a", "notes/b", "differs only by case from the directory 'Notes'"),
        ("a/b/C/d", "a/b/c/e", "differs only by case from the directory 'a/b/C'"),
        ("a", "a/b", "'a' is a file"),
        ("A", "a/b", "'A' is a file"),
        ("a/b", "a", "'a' is a directory"),
        ("a/b", "A", "'a' is a directory"),
        ("notes.txt", "notes.txt", None),
        ("notes/a", "notes/b", None),
        ("a", "b", None),
    ],
)
def test_a_new_path_collides_with_other_cases_and_with_directories(
    existing: str, new: str, problem: str | None
) -> None:
    found = PathIndex([normalise(existing)]).collision(normalise(new))
    assert found is None if problem is None else found is not None and problem in found


NAMES = ["a", "A", "a/b", "A/b", "a/B", "a/b/c", "k", "\u212a", "ss/x", "\xdf/x", "\xdf/y"]
PATHS = st.sampled_from([normalise(name) for name in NAMES])


@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from([True, True, False]), PATHS), max_size=25), PATHS)
def test_the_index_agrees_with_looking_at_every_path(changes: list[tuple[bool, FilePath]], probe: FilePath) -> None:
    index, present = PathIndex(), set[FilePath]()
    for adding, path in changes:
        if adding:
            index.add(path)
            present.add(path)
        else:
            index.remove(path)
            present.discard(path)

    files = {caseless_key(path) for path in present}
    directories = {parent for path in present for parent in parents(path)}
    by_key: dict[str, set[str]] = {}
    for directory in directories:
        by_key.setdefault(caseless_key(directory), set()).add(directory)
    collides = (
        any(caseless_key(parent) in files for parent in parents(probe))
        or any(parent not in by_key.get(caseless_key(parent), {parent}) for parent in parents(probe))
        or caseless_key(probe) in by_key
        or (caseless_key(probe) in files and probe not in present)
    )
    assert (index.collision(probe) is not None) == collides
    assert index.is_directory(probe) == (probe in directories)


def test_a_file_added_twice_to_the_index_is_gone_after_one_removal() -> None:
    index, path = PathIndex(), normalise("a/b")
    index.add(path)
    index.add(path)
    index.remove(path)
    index.remove(path)
    assert not index.is_directory(normalise("a"))
    assert index.collision(normalise("A/b")) is None
