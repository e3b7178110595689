"""Builds the package as it is published and imports it from outside the tree (`make wheel`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

CHECK = """
import importlib, importlib.metadata, pathlib, pkgutil, sys

target = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(target))
import sapwood

assert pathlib.Path(sapwood.__file__).is_relative_to(target), f"imported from {sapwood.__file__}, not from the wheel"
names = ["sapwood"]
for module in pkgutil.walk_packages(sapwood.__path__, "sapwood."):
    if not module.name.rpartition(".")[2].startswith("_"):
        importlib.import_module(module.name)
        names.append(module.name)

wheel, = importlib.metadata.distributions(name="sapwood", path=[str(target)])
script, = wheel.entry_points.select(group="console_scripts", name="sapwood")
assert script.value == "sapwood.console:main", script
files = {str(path) for path in wheel.files}
for wanted in ("sapwood/py.typed", f"sapwood-{wheel.version}.dist-info/licenses/LICENSE"):
    assert wanted in files, f"the wheel has no {wanted}"
strangers = sorted(path for path in files if path.endswith(".py") and not path.startswith("sapwood/"))
assert not strangers, f"the wheel has files outside sapwood/: {strangers}"
print(f"wheel of sapwood {wheel.version}: {len(names)} public modules import from outside the tree")
"""


def main() -> None:
    """Build sdist and wheel, install the wheel alone into an empty folder, import every public module from there."""
    with tempfile.TemporaryDirectory() as scratch:
        dist, target = Path(scratch, "dist"), Path(scratch, "target")
        _run("-m", "build", "--no-isolation", "--outdir", str(dist), str(ROOT))
        (wheel,) = dist.glob("*.whl")
        _run("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel))
        # -I: neither the current folder nor PYTHONPATH can offer the tree in place of the wheel.
        done = subprocess.run([sys.executable, "-I", "-c", CHECK, str(target)], cwd="/", check=False)
        sys.exit(done.returncode)


def _run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True
    )
    if done.returncode:
        sys.exit(f"python {' '.join(arguments)} failed with exit code {done.returncode}:\n{done.stdout}")


if __name__ == "__main__":
    main()
