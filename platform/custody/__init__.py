"""Where bytes and rows meet: checks, collection, archives and pages over a store and a catalog together.

The store knows digests and the catalog knows rows; neither imports the other. What must hold between them,
that every row has its bytes and every byte its reason, is kept here.

    tie             the one store of a catalog: another one is refused

Checks:

    fsck            the check as a whole; fsck_findings: what can be found; fsck_repair: what is done about it
    fsck_rows       rows against rows and manifests; fsck_bytes: rows against bytes; fsck_inventory: a listing
                    of the store, sorted

Collection:

    collect         the collector; mark: what nothing keeps; candidates: that, kept on disk
    plan            what a collection would do; summary: either as Markdown
    trash           what was collected and can be brought back
    users           which catalogs share a store

Archives:

    archive_export  a closure into one tar; archive_import: the way back
    archive_format  what an archive holds; archive_writer, archive_reader: the tar itself

Pages:

    pages           writing them; pages_facts: what is on one; pages_index: the days; pages_render: HTML
    pages_path      where a page is and what it is called; tree: lineage as nested lists
    pages_sound     drawings of the sounds on one

And `why`: why a call was answered from memo, or was not.
"""
