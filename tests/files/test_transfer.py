"""Importing and exporting real directories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sapwood.actors import RealEnvironment
from sapwood.errors import (
    BackendFailed,
    FileExists,
    InvalidOption,
    InvalidPath,
    InvalidPattern,
    QuotaExceeded,
    ReadOnly,
)
from sapwood.files import (
    Conflicts,
    FileBackend,
    FileTree,
    MemoryBackend,
    Mount,
    Mounts,
    Quota,
    Transferred,
    export_directory,
    import_directory,
    normalise,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory with two texts and bytes that are none."""
    root = tmp_path / "source"
    (root / "sub").mkdir(parents=True)
    (root / "a.md").write_bytes(b"a\r\n")
    (root / "sub" / "image").write_bytes(bytes(range(256)))
    (root / "sub" / "b.md").write_bytes(b"")
    return root


def on_disk(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def held(tree: FileTree) -> dict[str, bytes]:
    return {entry.path: (await tree.read_bytes(entry.path)).data for entry in (await tree.ls()).entries}


def actions(report: Any) -> dict[str, str]:
    return {each.path: each.action for each in report.files}


# --- importing --------------------------------------------------------------------------------


async def test_a_directory_is_imported_byte_for_byte_and_exported_again(
    tree: FileTree, source: Path, environment: RealEnvironment, tmp_path: Path
) -> None:
    report = await import_directory(tree, source, environment, into="/old/")
    assert report.files == (
        Transferred(normalise("old/a.md"), "create", 3),
        Transferred(normalise("old/sub/b.md"), "create", 0),
        Transferred(normalise("old/sub/image"), "create", 256),
    )
    assert (report.complete, report.dry_run) == (True, False)
    assert await held(tree) == {f"old/{name}": data for name, data in on_disk(source).items()}

    target = tmp_path / "target"
    target.mkdir()
    report = await export_directory(tree, target, environment)
    assert set(actions(report).values()) == {"create"}
    assert on_disk(target) == await held(tree)
    again = await export_directory(tree, target, environment)
    assert set(actions(again).values()) == {"unchanged"}


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    tree: FileTree, source: Path, environment: RealEnvironment, tmp_path: Path
) -> None:
    await tree.write("a.md", "other")
    before = await held(tree)
    report = await import_directory(tree, source, environment, conflicts="replace", dry_run=True)
    assert actions(report) == {"a.md": "replace", "sub/b.md": "create", "sub/image": "create"}
    assert (report.dry_run, report.count("create")) == (True, 2)
    assert await held(tree) == before
    (tmp_path / "target").mkdir()
    report = await export_directory(tree, tmp_path / "target", environment, dry_run=True)
    assert actions(report) == {"a.md": "create"}
    assert on_disk(tmp_path / "target") == {}


@pytest.mark.parametrize(
    ("policy", "absent", "same", "different"),
    [
        ("fail", None, "unchanged", None),
        ("skip", "create", "unchanged", "skip"),
        ("replace", "create", "unchanged", "replace"),
    ],
)
async def test_the_policy_decides_about_files_that_are_there_with_another_content(
    tree: FileTree,
    source: Path,
    environment: RealEnvironment,
    *,
    policy: Conflicts,
    absent: str | None,
    same: str,
    different: str | None,
) -> None:
    await tree.write_bytes("sub/image", bytes(range(256)))
    await tree.write("a.md", "mine")
    if different is None:
        with pytest.raises(FileExists, match=r"'a\.md': has another content in the target; nothing was copied"):
            await import_directory(tree, source, environment, conflicts=policy)
        assert set(await held(tree)) == {"a.md", "sub/image"}
        with pytest.raises(FileExists, match="has another content"):
            await export_directory(tree, source, environment, conflicts=policy)
        assert on_disk(source)["a.md"] == b"a\r\n"
        return
    report = await import_directory(tree, source, environment, conflicts=policy)
    assert actions(report) == {"a.md": different, "sub/b.md": absent, "sub/image": same}
    assert (await tree.read_bytes("a.md")).data == (b"mine" if policy == "skip" else b"a\r\n")

    await tree.write("a.md", "newer")
    report = await export_directory(tree, source, environment, conflicts=policy)
    assert actions(report) == {"a.md": different, "sub/b.md": same, "sub/image": same}
    assert on_disk(source)["a.md"] == (b"a\r\n" if policy == "skip" else b"newer")


async def test_links_special_files_and_refused_names_are_named_and_not_followed(
    tree: FileTree, source: Path, environment: RealEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("outside")
    (source / "link").symlink_to(tmp_path / "secret")
    (source / "dir-link").symlink_to(tmp_path)
    os.link(tmp_path / "secret", source / "hard")
    os.mkfifo(source / "pipe")
    (source / "bad\nname").write_text("x")
    report = await import_directory(tree, source, environment)
    assert set(actions(report)) == {"a.md", "sub/b.md", "sub/image"}
    assert {each.name for each in report.skipped} == {"link", "dir-link", "hard", "pipe", "bad\nname"}
    assert not report.complete
    assert b"outside" not in (await held(tree)).values()


async def test_limits_are_held_before_anything_is_changed(
    backend: FileBackend, source: Path, environment: RealEnvironment
) -> None:
    tree = FileTree(backend, environment, limits=Quota(max_files=2, max_total_bytes=1000))
    await tree.open()
    with pytest.raises(QuotaExceeded, match="more than the 2 allowed"):
        await import_directory(tree, source, environment)
    assert await held(tree) == {}
    for limits in (Quota(max_files=2), Quota(max_total_bytes=258)):
        with pytest.raises(QuotaExceeded, match="narrow the pattern"):
            await import_directory(tree, source, environment, limits=limits)
    report = await import_directory(tree, source, environment, limits=Quota(max_file_bytes=255))
    assert set(actions(report)) == {"a.md", "sub/b.md"}
    assert [each.name for each in report.skipped] == ["sub/image"]


async def test_only_what_a_pattern_matches_is_taken(
    tree: FileTree, source: Path, environment: RealEnvironment, tmp_path: Path
) -> None:
    report = await import_directory(tree, source, environment, pattern="**/*.md")
    assert set(actions(report)) == {"a.md", "sub/b.md"}
    (tmp_path / "target").mkdir()
    report = await export_directory(tree, tmp_path / "target", environment, pattern="sub")
    assert set(actions(report)) == {"sub/b.md"}
    with pytest.raises(InvalidPattern):
        await import_directory(tree, source, environment, pattern="../*")


@pytest.mark.row("BR-37")
async def test_names_in_the_way_refuse_an_import_that_is_to_fail_and_are_named_otherwise(
    tree: FileTree, source: Path, environment: RealEnvironment
) -> None:
    await tree.write("A.md", "another case")
    with pytest.raises(FileExists, match=r"differs only by case from 'A\.md'.*nothing was copied"):
        await import_directory(tree, source, environment)
    assert set(await held(tree)) == {"A.md"}
    report = await import_directory(tree, source, environment, conflicts="skip")
    assert [each.name for each in report.failed] == ["a.md"]
    assert set(await held(tree)) == {"A.md", "sub/b.md", "sub/image"}


async def test_a_denied_file_is_neither_imported_nor_exported(
    backend: FileBackend, source: Path, environment: RealEnvironment, tmp_path: Path
) -> None:
    (source / ".ENV").write_text("secret")
    await backend.write(normalise("sub/.env"), b"secret too")
    tree = FileTree(backend, environment, deny=[".env"])
    await tree.open()
    report = await import_directory(tree, source, environment, conflicts="replace")
    assert [each.name for each in report.failed] == [".ENV"]
    (tmp_path / "target").mkdir()
    report = await export_directory(tree, tmp_path / "target", environment)
    assert set(on_disk(tmp_path / "target")) == {"a.md", "sub/b.md", "sub/image"}


async def test_a_file_that_cannot_be_written_is_named_and_the_others_go_on(
    source: Path, environment: RealEnvironment
) -> None:
    mounts = Mounts({"": MemoryBackend(environment), "sub": Mount(MemoryBackend(environment), read_only=True)})
    async with FileTree(mounts, environment) as tree:
        report = await import_directory(tree, source, environment)
        assert set(actions(report)) == {"a.md"}
        assert {each.name: each.reason for each in report.failed} == {
            "sub/b.md": "the mount 'sub' is read-only",
            "sub/image": "the mount 'sub' is read-only",
        }


async def test_an_export_replaces_no_link_and_leads_nowhere_else(
    tree: FileTree, environment: RealEnvironment, tmp_path: Path
) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (outside / "a.md").write_text("outside")
    (target / "a.md").symlink_to(outside / "a.md")
    (target / "sub").symlink_to(outside)
    await tree.write("a.md", "x")
    await tree.write("sub/b.md", "x")
    await tree.write("c.md", "x")
    report = await export_directory(tree, target, environment, conflicts="replace")
    assert set(actions(report)) == {"c.md"}
    assert [each.name for each in report.failed] == ["a.md", "sub/b.md"]
    assert on_disk(outside) == {"a.md": b"outside"}


async def test_what_changes_between_the_plan_and_the_copy_is_not_overwritten(
    source: Path, environment: RealEnvironment, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir()

    class Meddling(FileTree):
        async def read_bytes(self, path: str) -> Any:
            (target / path).write_text("theirs")
            return await super().read_bytes(path)

        async def write_bytes(self, path: str, data: bytes, *, expected_version: int | None = None) -> Any:
            await super().write_bytes(path, b"theirs")
            return await super().write_bytes(path, data, expected_version=expected_version)

    async with Meddling(MemoryBackend(environment), environment) as tree:
        await tree.write("x.md", "mine")
        report = await export_directory(tree, target, environment)
        assert [each.name for each in report.failed] == ["x.md"]
        assert on_disk(target) == {"x.md": b"theirs"}
        report = await import_directory(tree, source, environment, pattern="a.md")
        assert [each.name for each in report.failed] == ["a.md"]
        assert (await tree.read("a.md")).lines == ("theirs",)


async def test_a_file_that_changes_after_it_was_looked_at_is_not_imported(
    source: Path, environment: RealEnvironment
) -> None:
    class Slow(FileTree):
        async def stat(self, path: str) -> Any:
            (source / path).write_bytes(b"new")
            return await super().stat(path)

    async with Slow(MemoryBackend(environment), environment) as tree:
        report = await import_directory(tree, source, environment, pattern="a.md")
        assert [(each.name, each.reason) for each in report.failed] == [
            ("a.md", "was changed while the directory was imported; import it again")
        ]
        assert await held(tree) == {}


async def test_a_crash_in_an_export_leaves_no_half_file(
    tree: FileTree, environment: RealEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "a").write_text("old")
    await tree.write("a", "new content")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sapwood.files._export.os.rename", fail)
    report = await export_directory(tree, target, environment, conflicts="replace")
    monkeypatch.undo()
    assert [each.name for each in report.failed] == ["a"]
    assert "no room" in report.failed[0].reason
    assert on_disk(target) == {"a": b"old"}


async def test_a_transfer_that_means_nothing_is_refused(
    tree: FileTree, source: Path, environment: RealEnvironment, tmp_path: Path
) -> None:
    wrong: Any = "overwrite"
    for call in (
        import_directory(tree, source, environment, conflicts=wrong),
        export_directory(tree, source, environment, conflicts=wrong),
    ):
        with pytest.raises(InvalidOption, match="expected 'fail', 'skip' or 'replace'"):
            await call
    with pytest.raises(InvalidPath):
        await import_directory(tree, source, environment, into="../x")
    for call in (
        import_directory(tree, tmp_path / "none", environment),
        export_directory(tree, tmp_path / "none", environment),
    ):
        with pytest.raises(BackendFailed, match="No such file"):
            await call


async def test_a_read_only_filesystem_takes_nothing_in(source: Path, environment: RealEnvironment) -> None:
    async with FileTree(MemoryBackend(environment), environment, read_only=True) as tree:
        report = await import_directory(tree, source, environment)
        assert [each.reason for each in report.failed] == ["this filesystem is read-only"] * 3
        with pytest.raises(ReadOnly):
            await tree.write("a", "x")
