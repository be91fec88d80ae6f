// An application that uses pg-boss, driven by a test: one JSON request a line on standard input, one JSON answer a line
// on standard output. Requests name a method of pg-boss and its arguments; the few others are below.
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const [folder, url, schema] = process.argv.slice(2)
const { PgBoss } = await import(pathToFileURL(`${folder}/node_modules/pg-boss/dist/index.js`))

const boss = new PgBoss({
  connectionString: url,
  schema,
  schedule: false,
  // As often as pg-boss allows: what it gives up, it gives up at once.
  supervise: true,
  superviseIntervalSeconds: 1,
  monitorIntervalSeconds: 1
})
boss.on('error', error => console.error(error))

const ran = []
const calls = {
  // Runs the jobs of a queue as a worker of pg-boss does; each takes so long.
  async compete (queue, milliseconds) {
    await boss.work(queue, { pollingIntervalSeconds: 0.5, batchSize: 2 }, async jobs => {
      for (const job of jobs) {
        ran.push(job.id)
        await new Promise(resolve => setTimeout(resolve, milliseconds))
      }
    })
  },
  // The ids of the jobs that ran here, in their order.
  async ran () {
    return ran
  }
}

await boss.start()
console.log(JSON.stringify({ id: 0, ok: true }))

for await (const line of createInterface({ input: process.stdin })) {
  const { id, call, args } = JSON.parse(line)
  const answer = calls[call] ? calls[call](...args) : boss[call](...args)
  Promise.resolve(answer)
    .then(ok => console.log(JSON.stringify({ id, ok: ok ?? null })))
    .catch(error => console.log(JSON.stringify({ id, error: String(error?.stack ?? error) })))
}
process.exit(0)
