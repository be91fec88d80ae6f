"""Loads a file of JSON lines into Postgres with dlt, as its documentation does it, and tells how long that took.

Usage: dlt_load.py {rows|arrow} FILE FOLDER; the database is named by DESTINATION_URL. With `rows` dlt gets lists of
dictionaries and does everything by its defaults; with `arrow` it gets Arrow tables, which it need not look into.
The folder keeps what dlt remembers between two loads.
"""

import json
import os
import sys
import time

import dlt

# Rows given to dlt at once: its documentation recommends pages over single rows.
PAGE = 1_000


def rows(path):
    """Lists of dictionaries."""
    page = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            page.append(json.loads(line))
            if len(page) == PAGE:
                yield page
                page = []
    if page:
        yield page


def arrow(path):
    """One Arrow table; object and list become JSON text, which is how its columns take them."""
    import pyarrow
    import pyarrow.json

    table = pyarrow.json.read_json(path)
    for name in ("address", "tags"):
        at = table.schema.get_field_index(name)
        text = [json.dumps(value) for value in table.column(at).to_pylist()]
        table = table.set_column(at, name, pyarrow.array(text))
    yield table


def main():
    kind, path, folder = sys.argv[1:]
    read = {"rows": rows, "arrow": arrow}[kind]
    # dlt wants one even where the server asks for none.
    os.environ.setdefault("CREDENTIALS__PASSWORD", "unused")
    pipeline = dlt.pipeline(
        pipeline_name="bench",
        pipelines_dir=folder,
        destination=dlt.destinations.postgres(os.environ["DESTINATION_URL"]),
        dataset_name="peer",
    )
    resource = dlt.resource(
        read(path), name="rows", write_disposition="merge", primary_key="id"
    )
    began = time.perf_counter()
    loaded = pipeline.run(resource)
    loaded.raise_on_failed_jobs()
    print(json.dumps({"seconds": time.perf_counter() - began}))


main()
