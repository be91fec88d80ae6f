// graphile-worker on Node.
import { Logger, makeWorkerUtils, run as runWorker, runMigrations } from 'graphile-worker'
import { run, settings, start, url } from './kit.mjs'

const quiet = new Logger(() => (level, message) => {
  if (level === 'error' || level === 'warning') console.error(level, message)
})
const worker = { connectionString: url, logger: quiet }
// Those of the project's own page on performance.
if (settings === 'best') {
  Object.assign(worker, {
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0
  })
}
const preset = { worker }
let utils
const ready = async () => (utils ??= await makeWorkerUtils({ preset }))

await run({
  setup: () => runMigrations({ preset }),
  one: async payload => (await ready()).addJob('noop', payload),
  many: async payloads => (await ready()).addJobs(payloads.map(payload => ({ identifier: 'noop', payload }))),
  work: () => runWorker({
    preset,
    taskList: { noop: async ({ id }) => start(id) },
    noHandleSignals: true,
    parsedCronItems: []
  })
})
