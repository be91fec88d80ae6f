// What the peers on Node do the same way; `rust/kit` says what each operation answers.
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'

const BATCH = 1000
const SINGLY = 1000
const GAP_MS = 20
const BOUND_MS = Number(process.env.PEER_BOUND_SEC) * 1000

export const url = process.env.DATABASE_URL
export const settings = process.env.PEER_SETTINGS ?? 'default'
export const [operation, count] = process.argv.slice(2)
const jobs = Number(count)
const answer = what => console.log(JSON.stringify(what))
// Of the machine, which other processes read as well; `performance.now()` begins with the process.
const monotonicMs = () => Number(process.hrtime.bigint()) / 1e6

const starts = new Map()
let begun = performance.now()
let started = 0
let first

// Called by every handler as the first thing it does.
export function start (id) {
  first ??= performance.now()
  started++
  if (operation === 'work' && !starts.has(id)) starts.set(id, monotonicMs())
}

async function drain (work) {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  begun = performance.now()
  await work()
  for (;;) {
    const late = performance.now() - (first ?? begun) > BOUND_MS
    if (late || started >= jobs) {
      const left = Number((await client.query(process.env.PEER_LEFT)).rows[0].count)
      if (late || left === 0) {
        return answer({ jobs: jobs - left, seconds: (performance.now() - (first ?? begun)) / 1000 })
      }
    }
    await sleep(2)
  }
}

async function noteStarts (work) {
  await work()
  console.log('READY')
  while (starts.size < jobs && performance.now() - begun < BOUND_MS) await sleep(5)
  answer({ times: [...starts] })
}

async function produce (one) {
  const times = []
  for (let id = 0; id < jobs; id++) {
    await sleep(GAP_MS)
    await one({ id })
    times.push([id, monotonicMs()])
  }
  answer({ times })
}

async function insert (one, many) {
  const singly = settings === 'default' ? Math.min(jobs, SINGLY) : 0
  const began = performance.now()
  for (let id = 0; id < singly; id++) await one({ id })
  let took = { jobs: singly, seconds: (performance.now() - began) / 1000 }
  for (let start = singly; start < jobs; start += BATCH) {
    const length = Math.min(BATCH, jobs - start)
    await many(Array.from({ length }, (_, at) => ({ id: start + at })))
  }
  if (singly === 0) took = { jobs, seconds: (performance.now() - began) / 1000 }
  answer(took)
}

// Does what is asked with the peer's own four: make the tables, enqueue one, enqueue many, start a worker.
export async function run ({ setup, one, many, work }) {
  if (operation === 'setup') await setup()
  else if (operation === 'insert') await insert(one, many)
  else if (operation === 'drain') await drain(work)
  else if (operation === 'work') await noteStarts(work)
  else if (operation === 'produce') await produce(one)
  else throw new Error(`no such operation: ${operation}`)
  process.exit(0)
}
