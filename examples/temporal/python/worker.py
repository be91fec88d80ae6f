"""A Temporal worker that fetches pages of a JSON API for directives.

It serves one activity, `fetch_page`: a page of records in, nothing kept. Where a run stands, what was seen before and
what is written is decided by Stargate; the contract is in docs/guides/temporal-workers.md.

The API answers `GET URL?limit=N&after=POINTER` with `{"items": [...], "next": POINTER or null}`. A token for it is
read from SOURCE_TOKEN: what stands in a directive's `args` is readable in Temporal's history.
"""

import asyncio
import email.utils
import http.client
import json
import os
import signal
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Awaitable, NoReturn, Optional, TypeVar

from temporalio import activity
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

TASK_QUEUE = "meta-py"
# What is under way when the worker is told to stop may take so long; then it is left to another worker.
GRACE = timedelta(seconds=10)
HEARTBEAT_EVERY_SEC = 1.0
REQUEST_TIMEOUT_SEC = 30.0
RETRY_AFTER_MAX = timedelta(hours=1)
# Temporal refuses results of more than 2 MB, so Stargate wants less; it asks for smaller pages if one is larger.
PAGE_BYTES_MAX = 1_500_000

T = TypeVar("T")


@dataclass
class PageRequest:
    """What Stargate asks for."""

    directive: str
    tenant: str
    project: str
    args: dict[str, Any]
    # As the page before gave it as `next`; none for the first page.
    pointer: Any
    page_size: int


@dataclass
class Page:
    """What it gets."""

    records: list[Any]
    next: Any
    is_last: bool


@activity.defn(name="fetch_page")
async def fetch_page(request: PageRequest) -> Page:
    url = page_url(request)
    # In a thread, so that the heartbeats go on: they tell that this worker lives, and bring cancellations.
    answer = await heartbeating(asyncio.to_thread(get, url))
    records = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(records, list):
        raise failure("ValidationFailure", "the answer has no list called items")
    pointer = answer.get("next")
    return Page(records=records, next=pointer, is_last=pointer is None)


def page_url(request: PageRequest) -> str:
    url = request.args.get("url")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise failure("Fatal", "args.url must be the address of an HTTP API")
    query = {"limit": request.page_size}
    if request.pointer is not None:
        query["after"] = request.pointer
    return f"{url}{'&' if '?' in url else '?'}{urllib.parse.urlencode(query)}"


def get(url: str) -> Any:
    headers = {"accept": "application/json"}
    if token := os.environ.get("SOURCE_TOKEN"):
        headers["authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_SEC) as response:
            body = response.read(PAGE_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        refused(error)
    except (OSError, http.client.HTTPException) as error:
        raise failure("RetryableTransient", f"the API cannot be reached: {error}") from None
    if len(body) > PAGE_BYTES_MAX:
        raise failure("PayloadsTooLarge", f"the page has more than {PAGE_BYTES_MAX} bytes")
    try:
        return json.loads(body)
    except ValueError as error:
        # It was cut off, or something between us and the API has answered.
        raise failure("RetryableTransient", "the answer is not JSON") from None


def refused(error: urllib.error.HTTPError) -> NoReturn:
    message = f"the API answered {error.code}"
    if error.code in (408, 425, 429) or error.code >= 500:
        delay = retry_after(error.headers.get("retry-after"))
        raise failure("RetryableTransient", message, delay) from None
    # 401, 403, 404 and whatever else will not be better the next time.
    raise failure("Fatal", message) from None


def retry_after(value: Optional[str]) -> Optional[timedelta]:
    """How long the API wants to be left alone: seconds or a date."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return min(timedelta(seconds=int(value[:9])), RETRY_AFTER_MAX)
    try:
        delay = email.utils.parsedate_to_datetime(value) - datetime.now(timezone.utc)
    except (TypeError, ValueError):
        return None
    return min(delay, RETRY_AFTER_MAX) if delay > timedelta(0) else None


def failure(kind: str, message: str, delay: Optional[timedelta] = None) -> ApplicationError:
    """An error of one of the classes that Stargate knows. Only RetryableTransient is tried again."""
    retryable = kind == "RetryableTransient"
    return ApplicationError(message, type=kind, non_retryable=not retryable, next_retry_delay=delay)


async def heartbeating(work: Awaitable[T]) -> T:
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            activity.heartbeat()
            await asyncio.wait([task], timeout=HEARTBEAT_EVERY_SEC)
        return task.result()
    finally:
        task.cancel()


async def main() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    # TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_…
    settings = {"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()}
    client = await Client.connect(**settings)
    worker = Worker(
        client, task_queue=TASK_QUEUE, activities=[fetch_page], graceful_shutdown_timeout=GRACE
    )
    async with worker:
        print("ready", flush=True)
        await stopped.wait()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except RuntimeError as error:
        # No server, no such namespace, no permission.
        sys.exit(f"error: {error}")
