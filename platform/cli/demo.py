"""demo: everything started, one video made from a prompt, and where each byte of it came from."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from mutoscope.platform.cli import render

WORKFLOW = "text_to_video"
PROMPT = "a red circle left of a blue square, drifting right"


def demo(
    prompt: Annotated[str, typer.Option(help="What to show.")] = PROMPT,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same video, bit for bit.")] = 7,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the PNG and the MP4.")] = Path(
        "demo-output"
    ),
) -> None:
    """Start the stack if need be, turn a prompt into a picture and a video, and print their lineage.

    Example: mutoscope demo --prompt "a green triangle above a yellow circle, drifting left" --seed 3
    """
    from mutoscope.platform.cli import run as running
    from mutoscope.platform.cli.follow import follower
    from mutoscope.platform.cli.lineage import print_tree

    begun = time.monotonic()
    ensure_up()
    up = time.monotonic()
    home = running.joined_home()
    with follower(render.say) as watch:
        finished = running.run_here(home, WORKFLOW, {"prompt": prompt, "seed": seed}, watch)
    ran = time.monotonic()
    render.say()
    running.report(home, finished, ran - up, output=output)
    render.say()
    print_tree(home.catalog.lineage.up((finished.outputs or {})["video"]))
    render.say()
    render.say(f"{'stack up':<12} {render.seconds(up - begun)}")
    render.say(f"{'workflow':<12} {render.seconds(ran - up)}")
    if home.stack is not None:
        render.say(f"{'Prefect UI':<12} {home.stack.prefect_ui_url}")
        render.say(f"{'gateway':<12} {home.stack.web_url}")
    render.say(f"{'stop it':<12} MUTOSCOPE_HOME={home.path} mutoscope down")


def ensure_up() -> None:
    """Start a detached stack on the home unless one runs; wait for one that is starting."""
    from mutoscope.platform.cli import boot, detach
    from mutoscope.platform.cli.home import Home

    home = Home()
    if boot.is_held(home.path):
        detach.wait_until_ready(home, render.say)
    else:
        detach.start(home, boot.Options(), render.say)
