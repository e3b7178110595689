"""What `import sapwood` costs, and what it does without."""

from __future__ import annotations

import json
import subprocess
import sys

from source_rules import ROOT, public_packages

HEAVY = (
    "anthropic",
    "asyncio",
    "click",
    "coredis",
    "cryptography",
    "httpx2",
    "hypercorn",
    "jsonschema",
    "mcp",
    "openai",
    "opentelemetry",
    "pydantic",
    "rich",
    "ruamel",
    "sqlite_utils",
    "starlette",
    "structlog",
    "typer",
    "zstandard",
)
EXTRAS = (
    "anthropic",
    "coredis",
    "cryptography",
    "hypercorn",
    "mcp",
    "openai",
    "opentelemetry",
    "rich",
    "ruamel",
    "starlette",
    "typer",
    "zstandard",
)


def run(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_sapwood_loads_no_heavy_or_optional_library() -> None:
    loaded = run("import json, sys, sapwood; print(json.dumps(sorted(sys.modules)))")

    assert [name for name in HEAVY if name in json.loads(loaded)] == []


def test_every_public_package_imports_without_the_extras() -> None:
    run(
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"  # None makes an import of the name fail
        f"for package in {public_packages()!r}:\n"
        "    importlib.import_module(package)\n"
    )
