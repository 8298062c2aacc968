"""The artifact gateway: bytes and pages over HTTP. It reads; nothing here changes anything.

    app          routes, and the headers every answer carries
    content      an artifact's bytes: ranges, entity tags, media types
    poster       the first frame of a video, as PNG
    metrics      the pool, for Prometheus
    views        what a page shows, gathered from the catalog
    templates/   the pages (Jinja, autoescaped); static/ their style sheet. No script anywhere.

`python -m mutoscope.platform.web --port 4280` serves it.
"""
