#!/bin/sh
# mypy finds packages by folder name, but `platform/` is `mutoscope.platform` only by the mapping in pyproject.toml.
# A tree of links gives it the import layout. Usage: typecheck.sh MYPY
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
tree="$root/build/typecheck"
rm -rf "$tree" && mkdir -p "$tree/mutoscope"
for part in platform flows workers models migrations; do ln -s "$root/$part" "$tree/mutoscope/$part"; done
cd "$tree"
exec "$1" --config-file "$root/mypy.ini" --cache-dir "$root/.mypy_cache" -p mutoscope
