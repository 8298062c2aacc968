"""Lineage as people read it, compared whole."""

from __future__ import annotations

from mutoscope.platform.catalog import Catalog, render_tree
from tests.support.records import a_spec, absent, an_artifact, claim
from tests.support.text import assert_text

IMAGE, VIDEO = an_artifact("image"), an_artifact("video", "video")
NET, TEXT, VAE = (an_artifact(name, "weights") for name in ("net", "text", "vae"))


def film(catalog: Catalog) -> None:
    """Two cards that share a text encoder; the image is made twice, the second time by a queued run."""
    imported = catalog.runs.record_completed(
        "import", card="flux-t2i", generated={"weights:transformer": NET, "weights:clip": TEXT}
    )
    catalog.weights.publish_all("flux-t2i", {"transformer": NET.digest, "clip": TEXT.digest}, imported.id)
    imported = catalog.runs.record_completed(
        "import", card="wan-i2v", generated={"weights:vae": VAE, "weights:clip": TEXT}
    )
    catalog.weights.publish_all("wan-i2v", {"vae": VAE.digest, "clip": TEXT.digest}, imported.id)
    for _ in range(2):
        spec = a_spec(seed=7, weights={"transformer": NET.digest, "clip": TEXT.digest})
        run = catalog.runs.enqueue(spec, present=absent).run
        claim(catalog)
        catalog.runs.succeed(run.id, "worker-a", {"image": IMAGE, "latent": an_artifact("latent", "latent")})
    spec = a_spec("film", inputs={"image": IMAGE}, weights={"vae": VAE.digest, "clip": TEXT.digest})
    run = catalog.runs.enqueue(spec, present=absent).run
    claim(catalog)
    catalog.runs.succeed(run.id, "worker-a", {"video": VIDEO})


def test_upwards(catalog: Catalog) -> None:
    film(catalog)
    assert_text(
        render_tree(catalog.lineage.up(VIDEO.digest)),
        """
        video:***
        └─ toy-card run ***  seed=7
           ├─ image: image:***
           │  ├─ toy-card run ***  seed=7
           │  │  ├─ weights:clip: flux-t2i/clip@1 = wan-i2v/clip@1  weights:***
           │  │  │  ├─ flux-t2i import ***
           │  │  │  └─ wan-i2v import ***
           │  │  └─ weights:transformer: flux-t2i/transformer@1  weights:***
           │  │     └─ flux-t2i import ***
           │  └─ toy-card run ***  seed=7
           │     ├─ weights:clip: flux-t2i/clip@1 = wan-i2v/clip@1  weights:***  (see above)
           │     └─ weights:transformer: flux-t2i/transformer@1  weights:***  (see above)
           ├─ weights:clip: flux-t2i/clip@1 = wan-i2v/clip@1  weights:***  (see above)
           └─ weights:vae: wan-i2v/vae@1  weights:***
              └─ wan-i2v import ***
        """,
    )


def test_downwards(catalog: Catalog) -> None:
    film(catalog)
    assert_text(
        render_tree(catalog.lineage.down(NET.digest)),
        """
        flux-t2i/transformer@1  weights:***
        ├─ toy-card run ***  seed=7
        │  ├─ image: image:***
        │  │  └─ toy-card run ***  seed=7
        │  │     └─ video: video:***
        │  └─ latent: latent:***
        └─ toy-card run ***  seed=7
           ├─ image: image:***  (see above)
           └─ latent: latent:***
        """,
    )


def test_one_generation(catalog: Catalog) -> None:
    film(catalog)
    assert_text(
        render_tree(catalog.lineage.up(VIDEO.digest, 1)),
        """
        video:***
        └─ toy-card run ***  seed=7
           ├─ image: image:***
           ├─ weights:clip: flux-t2i/clip@1 = wan-i2v/clip@1  weights:***
           └─ weights:vae: wan-i2v/vae@1  weights:***
        """,
    )


def test_unfinished_users_say_so(catalog: Catalog) -> None:
    catalog.runs.enqueue(a_spec(inputs={"first": IMAGE, "last": IMAGE}, seed=None), present=absent)
    assert_text(
        render_tree(catalog.lineage.down(IMAGE.digest)),
        """
        image:***
        └─ toy-card run ***  queued
        """,
    )
