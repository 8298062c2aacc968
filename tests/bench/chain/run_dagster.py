"""The chain in Dagster: assets materialised in process, events in the instance's SQLite, values as files.

`materialize` is how its documentation runs assets from Python; each run records every asset's data version
and those of what it came from. `DAGSTER_HOME` holds instance and values.
"""

import os
from functools import cache

import link
from dagster import AssetIn, AssetsDefinition, DagsterInstance, FilesystemIOManager, asset, materialize

HOME = os.environ["DAGSTER_HOME"]


def an_asset(position: int) -> AssetsDefinition:
    if position == 0:

        @asset(name="link_0", config_schema={"seed": int})
        def first(context) -> bytes:
            return link.step(link.start(context.op_config["seed"]), 0)

        return first

    @asset(name=f"link_{position}", ins={"previous": AssetIn(f"link_{position - 1}")})
    def later(previous: bytes) -> bytes:
        return link.step(previous, position)

    return later


@cache
def assets(steps: int) -> tuple[AssetsDefinition, ...]:
    return tuple(an_asset(position) for position in range(steps))


instance = DagsterInstance.get()


def run(seed: int, steps: int) -> bytes:
    result = materialize(
        assets(steps),
        instance=instance,
        resources={"io_manager": FilesystemIOManager(base_dir=f"{HOME}/values")},
        run_config={"ops": {"link_0": {"config": {"seed": seed}}}},
    )
    assert result.success
    return result.output_for_node(f"link_{steps - 1}")


if __name__ == "__main__":
    link.serve(run)
