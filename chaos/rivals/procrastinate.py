"""procrastinate with its default settings, four jobs at once: setup, enqueue N, work."""
import asyncio
import os
import sys

import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))


def effect(line):
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(line + "\n")


@app.task(name="step")
async def step(n):
    effect(f"b {n}")
    await asyncio.sleep(0.1)
    effect(f"e {n}")


async def main(operation, count):
    async with app.open_async():
        if operation == "setup":
            await app.schema_manager.apply_schema_async()
        elif operation == "enqueue":
            for n in range(count):
                await step.defer_async(n=n)
                print(n, flush=True)
        else:
            await app.run_worker_async(concurrency=4)


asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
