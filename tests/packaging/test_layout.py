"""The folders on disk, the packages of the wheel and the linter's roots are the same set."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PORTIONS = ("platform", "flows", "workers", "models", "migrations")


def packages_on_disk() -> set[str]:
    found = set()
    for portion in PORTIONS:
        for folder in (ROOT / portion, *(p for p in (ROOT / portion).rglob("*") if p.is_dir())):
            if any(folder.glob("*.py")):
                found.add(".".join(("mutoscope", *folder.relative_to(ROOT).parts)))
    return found


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_declared_packages_are_the_folders_on_disk():
    assert set(project()["tool"]["setuptools"]["packages"]) == packages_on_disk()


def test_every_portion_is_a_root_of_the_import_linter():
    linter = configparser.ConfigParser()
    linter.read(ROOT / ".importlinter")
    roots = set(linter["importlinter"]["root_packages"].split())
    assert roots == {f"mutoscope.{portion}" for portion in PORTIONS}
    assert set(project()["tool"]["setuptools"]["package-dir"].values()) == set(PORTIONS)


def test_every_package_explains_itself():
    silent = []
    for package in sorted(packages_on_disk() - {"mutoscope.platform"}):
        init = ROOT.joinpath(*package.split(".")[1:]) / "__init__.py"
        if not init.exists() or not init.read_text().lstrip().startswith('"""'):
            silent.append(package)
    assert silent == []


def test_platform_folder_does_not_shadow_the_standard_library():
    assert not (ROOT / "platform" / "__init__.py").exists()
    assert not (ROOT / "platform" / "platform.py").exists()
    code = "import platform; print(platform.system())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out, source = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("source")
    # From a copy: a build leaves its metadata beside what it built, and whatever runs in the checkout would
    # believe those long after they are out of date.
    left_out = shutil.ignore_patterns(".*", "tests", "docs", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=left_out, dirs_exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)],
        check=True,
        capture_output=True,
        text=True,
    )
    return next(out.glob("*.whl"))


def test_wheel_holds_the_same_packages_and_the_data(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    packed = {str(Path(n).parent).replace("/", ".") for n in names if n.endswith(".py")}
    assert packed == packages_on_disk()
    for card in ("flux-t2i", "wan-i2v"):
        assert f"mutoscope/models/starter/weights/{card}/model_index.json" in names
    assert any(n.startswith("mutoscope/migrations/versions/") for n in names)


def test_wheel_runs_outside_the_checkout(wheel: Path, tmp_path: Path):
    """Unpacked alone on the path, with the checkout's editable hook switched off (-S keeps its .pth out)."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    libraries = next(p for p in sys.path if p.endswith("site-packages"))
    code = f"""
import sys
sys.path[:0] = [{str(site)!r}]
sys.path.append({libraries!r})
import mutoscope.platform.settings as settings
assert settings.__file__.startswith({str(site)!r}), settings.__file__
from mutoscope.platform.cli.main import main
sys.argv = ["mutoscope", "cards", "--json"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        check=False,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MUTOSCOPE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "flux-t2i" in done.stdout
    assert "wan-i2v" in done.stdout
