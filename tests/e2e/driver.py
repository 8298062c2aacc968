"""Several `mutoscope` commands in one process: a JSON list of argument lists in, a JSON list of how each
ended out.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from mutoscope.platform.cli.main import main


def run(arguments: list[str]) -> dict[str, object]:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    json.dump([run(arguments) for arguments in json.load(sys.stdin)], sys.stdout)
