"""rl: trainings by reward: which there are, how they fare, and what their versions make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mutoscope.platform.catalog import Training
    from mutoscope.platform.cli.home import Home

app = typer.Typer(
    no_args_is_help=True,
    help="Trainings by reward: ls, show, curves, compare. To begin: `mutoscope run train_nft name=first`.\n\n"
    "Example: mutoscope rl show first",
)

SHOWN = 20
"""Iterations that `show` lists, the last ones."""


@app.command("ls")
def list_trainings(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="List at most so many.")] = 50,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List trainings, newest first: how far each has come, its head, and what was best.

    Example: mutoscope rl ls
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    found = [_summary(home, training) for training in home.catalog.trainings.list(limit)]
    if json:
        render.emit_json(found)
        return
    render.table(
        ["training", "iterations", "reward", "head", "best", "state", "age"],
        [
            (
                one["name"],
                f"{one['done']} of {one['iterations']}",
                _number(one["reward"]),
                ", ".join(one["heads"]),
                ", ".join(one["best"]),
                "halted" if one["halts"] else "",
                render.age(one["created_at"]),
            )
            for one in found
        ],
        empty="nothing has been trained yet: `mutoscope run train_nft name=first` begins",
    )


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="Of the training.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show one training: its configuration, where it began, and its iterations.

    Example: mutoscope rl show first
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.training import notes

    home = Home()
    training = home.catalog.trainings.get(name)
    every = range(int(training.configuration["iterations"]) + 1)
    noted = {
        title: notes.read_all(home.catalog, home.store, name, title, every)
        for title in (notes.ITERATION, notes.EVALUATION, notes.HALT)
    }
    summary = _summary(home, training)
    if json:
        render.emit_json(
            summary
            | {"configuration": training.configuration, "base": training.base}
            | {title: list(records.values()) for title, records in noted.items()}
        )
        return
    render.pairs(_facts(training, summary))
    render.say()
    render.table(
        ["iteration", "reward", "scored", "evaluation", "head"],
        [
            (
                at,
                _number(record["rewards"]["mean"]),
                f"{record['rewards']['scored']} of {record['rewards']['samples']}",
                _scores(noted[notes.EVALUATION].get(at)),
                ", ".join(head["version"] for head in record["heads"].values()),
            )
            for at, record in list(noted[notes.ITERATION].items())[-SHOWN:]
        ],
        empty="no iteration is done yet",
    )
    last = noted[notes.EVALUATION].get(summary["done"])
    if last is not None:
        render.say(f"after iteration {summary['done'] - 1}: {_scores(last)}")
    for halt in noted[notes.HALT].values():
        render.say(f"halted before iteration {halt['iteration']}: {'; '.join(halt['reasons'])}")


@app.command("curves")
def curves(
    name: Annotated[str, typer.Argument(help="Of the training.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write the picture; NAME-curves.png.")
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write an event file for TensorBoard there, too."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the numbers, and write no picture.")] = False,
) -> None:
    """Draw a training's curves: reward, scores, KL, ratio, clip fraction, staleness, rollouts per second.

    Example: mutoscope rl curves first -o first.png
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.errors import UnknownReference
    from mutoscope.platform.training.notes import curves_of

    home = Home()
    training = home.catalog.trainings.get(name)
    until = int(training.configuration["iterations"])
    series = curves_of(home.catalog, home.store, name, until)
    if not series["panels"]:
        raise UnknownReference(f"training {name} has no curves yet: nothing of it is done")
    if tensorboard is not None:
        from mutoscope.platform.training.tensorboard import export

        count = export(series, tensorboard)
        render.note(f"{count} numbers for TensorBoard in {tensorboard}")
    if json:
        render.emit_json(series)
        return
    render.say(str(_draw(series, output or Path(f"{name}-curves.png"))))


@app.command("compare")
def compare(
    left: Annotated[
        str, typer.Argument(help="flux-t2i/transformer@12 or flux-t2i@first; 12 or v12 with --of.")
    ],
    right: Annotated[str, typer.Argument(help="What it is compared with, likewise.")],
    of: Annotated[str, typer.Option(help="Whose version a number alone is.")] = "flux-t2i/transformer",
    prompt: Annotated[
        list[str] | None, typer.Option("--prompt", "-p", help="May be repeated; there are some by default.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=64, help="Seeds of each prompt.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 1,
    reward: Annotated[list[str] | None, typer.Option(help="A reward card; may be repeated.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also save the results in this folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and no progress.")] = False,
) -> None:
    """Show the same prompts and seeds by two versions, side by side as one picture with rewards.

    Example: mutoscope rl compare v12 v15
    """
    import time

    from mutoscope.platform.cli.follow import follower
    from mutoscope.platform.cli.run import joined_home, report, run_here

    home = joined_home()
    started = time.monotonic()
    values: dict[str, Any] = {
        "left": _version(left, of),
        "right": _version(right, of),
        "prompts": prompt or list(PROMPTS),
        "count": count,
        "seed": seed,
    }
    if reward:
        values["judges"] = reward
    with follower(render.say, quiet=json) as watch:
        finished = run_here(home, "rl.compare", values, watch)
    if not json:
        _print_means(home, finished.outputs or {}, values)
    report(home, finished, time.monotonic() - started, output=output, json=json)


PROMPTS = (
    "a red circle left of a blue square",
    "a green triangle above a yellow ring on a black background",
    "an orange cross on a pink background",
)
"""What is compared where no prompt is given."""


def _version(text: str, of: str) -> str:
    """A version in full: a number stands for one of the component that is named."""
    number = text.removeprefix("v")
    return f"{of}@{number}" if number.isdecimal() else text


def _print_means(home: Home, outputs: Mapping[str, str], values: Mapping[str, Any]) -> None:
    import json

    means = json.loads(home.store.get(outputs["means"]))
    render.table(
        ["reward", values["left"], values["right"]],
        [(judge, _number(one), _number(other)) for judge, (one, other) in means.items()],
        empty="no reward",
    )


def _summary(home: Home, training: Training) -> dict[str, Any]:
    """A training in a row, as plain data."""
    import json

    from mutoscope.platform.catalog.trainings import BEST
    from mutoscope.platform.training import notes

    catalog, name = home.catalog, training.name
    every = range(int(training.configuration["iterations"]) + 1)
    done = catalog.trainings.notes(name, notes.ITERATION, every)
    last = json.loads(home.store.get(done[-1].artifacts[notes.RECORD].digest)) if done else None
    cards = [stage["card"] for stage in training.configuration["stages"]]
    return {
        "name": name,
        "iterations": training.configuration["iterations"],
        "done": len(done),
        "reward": last and last["rewards"]["mean"],
        "heads": [str(v) for card in cards for v in catalog.weights.aliased(card, name).values()],
        "best": [str(v) for card in cards for v in catalog.weights.aliased(card, name + BEST).values()],
        "halts": [note.iteration for note in catalog.trainings.notes(name, notes.HALT, every)],
        "workflow_run": training.workflow_run_id,
        "created_at": training.created_at,
    }


def _facts(training: Training, summary: Mapping[str, Any]) -> dict[str, Any]:
    asked = training.configuration
    return {
        "training": training.name,
        "began": render.clock(training.created_at),
        "trains": [f"{stage['card']}/{part}" for stage in asked["stages"] for part in stage["train"]],
        "rewards": ", ".join(f"{card} x {share:g}" for card, share in asked["rewards"].items()),
        "iterations": f"{summary['done']} of {summary['iterations']}",
        "base": [training.base[stage["card"]][part] for stage in asked["stages"] for part in stage["train"]],
        "head": summary["heads"],
        "best": summary["best"],
    }


def _scores(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return ""
    return ", ".join(f"{judge} {_number(told['mean'])}" for judge, told in evaluation["scores"].items())


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _draw(series: Mapping[str, Any], path: Path) -> Path:
    """Write the picture that the card `line-charts` makes of the series. Raises InvalidParameter."""
    from PIL import Image

    from mutoscope.models.media.card import ChartParameters
    from mutoscope.models.media.chart import drawn
    from mutoscope.platform.errors import InvalidParameter

    given = ChartParameters()
    picture = Image.fromarray(drawn(series, given.columns, given.panel_width, given.panel_height))
    try:
        picture.save(path)
    except (OSError, ValueError) as error:
        raise InvalidParameter("output", str(path), f"name a file such as curves.png ({error})") from None
    return path
