/**
 * A Temporal worker that fetches pages of a JSON API for directives.
 *
 * It serves one activity, `fetch_page`: a page of records in, nothing kept. Where a run stands, what was seen before
 * and what is written is decided by Stargate; the contract is in docs/guides/temporal-workers.md.
 *
 * The API answers `GET URL?limit=N&after=POINTER` with `{"items": [...], "next": POINTER or null}`. A token for it is
 * read from SOURCE_TOKEN: what stands in a directive's `args` is readable in Temporal's history.
 */
import { Context } from '@temporalio/activity';
import { ApplicationFailure } from '@temporalio/common';
import { loadClientConnectConfig } from '@temporalio/envconfig';
import { NativeConnection, Worker } from '@temporalio/worker';

const TASK_QUEUE = 'meta-ts';
/** What is under way when the worker is told to stop may take so long; then it is left to another worker. */
const GRACE_MS = 10_000;
const HEARTBEAT_EVERY_MS = 1_000;
const REQUEST_TIMEOUT_MS = 30_000;
const RETRY_AFTER_MAX_MS = 3_600_000;
/** Temporal refuses results of more than 2 MB, so Stargate wants less; it asks for smaller pages if one is larger. */
const PAGE_BYTES_MAX = 1_500_000;

/** What Stargate asks for. */
interface PageRequest {
  directive: string;
  tenant: string;
  project: string;
  args: { url?: unknown } | null;
  /** As the page before gave it as `next`; null for the first page. */
  pointer: unknown;
  page_size: number;
}

/** What it gets. */
interface Page {
  records: unknown[];
  next: unknown;
  is_last: boolean;
}

/** The classes of errors that Stargate knows. Only the first is tried again. */
type Kind = 'RetryableTransient' | 'PayloadsTooLarge' | 'ValidationFailure' | 'Fatal';

async function fetchPage(request: PageRequest): Promise<Page> {
  // Heartbeats tell that this worker lives, and bring cancellations.
  const context = Context.current();
  const beat = setInterval(() => context.heartbeat(), HEARTBEAT_EVERY_MS);
  try {
    const answer = await get(pageUrl(request), context.cancellationSignal);
    const { items, next = null } = (answer ?? {}) as { items?: unknown; next?: unknown };
    if (!Array.isArray(items)) {
      throw failure('ValidationFailure', 'the answer has no list called items');
    }
    return { records: items, next, is_last: next === null };
  } finally {
    clearInterval(beat);
  }
}

function pageUrl({ args, pointer, page_size }: PageRequest): URL {
  const text = String(args?.url);
  if (!/^https?:/.test(text) || !URL.canParse(text)) {
    throw failure('Fatal', 'args.url must be the address of an HTTP API');
  }
  const url = new URL(text);
  url.searchParams.set('limit', String(page_size));
  if (pointer !== null && pointer !== undefined) {
    url.searchParams.set('after', String(pointer));
  }
  return url;
}

async function get(url: URL, cancelled: AbortSignal): Promise<unknown> {
  const token = process.env.SOURCE_TOKEN;
  const headers = { accept: 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const signal = AbortSignal.any([cancelled, AbortSignal.timeout(REQUEST_TIMEOUT_MS)]);
  let body: string;
  try {
    const response = await fetch(url, { headers, signal });
    if (!response.ok) {
      await response.body?.cancel();
      throw refused(response);
    }
    body = await text(response);
  } catch (error) {
    if (error instanceof ApplicationFailure || cancelled.aborted) {
      throw error;
    }
    const { cause, message } = error as Error;
    throw failure('RetryableTransient', `the API cannot be reached: ${cause instanceof Error ? cause.message : message}`);
  }
  try {
    return JSON.parse(body);
  } catch {
    // It was cut off, or something between us and the API has answered.
    throw failure('RetryableTransient', 'the answer is not JSON');
  }
}

/** The body, as long as it is not too long. */
async function text(response: Response): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of response.body ?? []) {
    bytes += piece.byteLength;
    if (bytes > PAGE_BYTES_MAX) {
      throw failure('PayloadsTooLarge', `the page has more than ${PAGE_BYTES_MAX} bytes`);
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}

function refused({ status, headers }: Response): ApplicationFailure {
  const message = `the API answered ${status}`;
  if ([408, 425, 429].includes(status) || status >= 500) {
    return failure('RetryableTransient', message, retryAfter(headers.get('retry-after')));
  }
  // 401, 403, 404 and whatever else will not be better the next time.
  return failure('Fatal', message);
}

/** How long the API wants to be left alone, in milliseconds: it says seconds or a date. */
function retryAfter(value: string | null): number | undefined {
  const delay = /^\d+$/.test(value ?? '') ? Number(value) * 1_000 : Date.parse(value ?? '') - Date.now();
  return delay >= 0 ? Math.min(delay, RETRY_AFTER_MAX_MS) : undefined;
}

function failure(type: Kind, message: string, nextRetryDelay?: number): ApplicationFailure {
  const nonRetryable = type !== 'RetryableTransient';
  return ApplicationFailure.create({ type, message, nonRetryable, nextRetryDelay });
}

async function main(): Promise<void> {
  // TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_…
  const { connectionOptions, namespace } = loadClientConnectConfig();
  const connection = await NativeConnection.connect(connectionOptions);
  try {
    const worker = await Worker.create({
      connection,
      namespace,
      taskQueue: TASK_QUEUE,
      activities: { fetch_page: fetchPage },
      shutdownGraceTime: GRACE_MS,
    });
    // Ends at SIGTERM and SIGINT, which the SDK waits for.
    const running = worker.run();
    console.log('ready');
    await running;
  } finally {
    await connection.close();
  }
}

main().catch((error: Error) => {
  // No server, no such namespace, no permission.
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
});
