"""Writing a composed card's folder out of folders of its parts. No torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from mutoscope.models.common.files import read_json
from mutoscope.models.common.folder import INDEX, config_class


def assemble(folder: Path, generator: Path, refiners: Mapping[str, Path], *, copy: bool = True) -> Path:
    """Write a composed folder, which must not exist yet.

    Args:
        generator: a folder of the generator's card.
        refiners: a language model's folder for each part's name.
        copy: copy the files; otherwise the folder holds symbolic links to what lies in the given ones, and
            only its index is a file of its own.
    """
    folder.mkdir(parents=True)
    for source in sorted(generator.iterdir()):
        if source.name != INDEX:
            _place(source, folder / source.name, copy)
    index = read_json(generator / INDEX)
    for part, source in refiners.items():
        _place(source, folder / part, copy)
        index[part] = ["transformers", config_class(read_json(source / "config.json"))]
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")
    return folder


def _place(source: Path, target: Path, copy: bool) -> None:
    if not copy:
        target.symlink_to(source.resolve(), target_is_directory=source.is_dir())
    elif source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
