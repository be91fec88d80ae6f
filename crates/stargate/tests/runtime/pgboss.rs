//! Jobs that a real pg-boss was given: run here once, and ended there, although the worker is killed in the middle.

use serde_json::{Value, json};
use stargate_queue::store::JobFilter;
use stargate_queue::{JobId, State};
use stargate_testkit::postgres::Database;
use stargate_testkit::process::{Program, Running};
use stargate_testkit::{eventually, pgboss};

use crate::stage::Stage;
use crate::{PATIENCE, on_both_stores};

/// An application that uses pg-boss. `watch` stays, with its maintenance as often as it goes.
const APPLICATION: &str = r#"
const { createRequire } = require('node:module');
const [folder, connectionString, what, ...rest] = process.argv.slice(1);
const { PgBoss } = createRequire(folder + '/')('pg-boss');
(async () => {
    const boss = new PgBoss({ connectionString, superviseIntervalSeconds: 1, maintenanceIntervalSeconds: 1 });
    boss.on('error', (error) => console.error(error));
    await boss.start();
    if (what === 'watch') {
        await boss.createQueue('work');
        console.log('watching');
        return;
    }
    if (what === 'send') console.log(await boss.send('work', JSON.parse(rest[0]), JSON.parse(rest[1])));
    if (what === 'show') console.log(JSON.stringify(await boss.getJobById('work', rest[0])));
    await boss.stop({ graceful: false });
})().catch((error) => { console.error(error); process.exit(1); });
"#;

/// Runs until the test lets that attempt go.
const KIND: &str = r#"
sources.pgboss.queues = ["work"]
sources.pgboss.poll = "200ms"
kinds.work.exec = ["sh", "-c", "echo $STARGATE_ATTEMPT >> runs.log; while [ ! -e go-$STARGATE_ATTEMPT ]; do sleep 0.02; done; echo '{\"result\":{\"answer\":42}}'"]
"#;

on_both_stores! {
    a_job_of_pg_boss_whose_worker_is_killed_is_finished_and_completed_there_once: super::KIND,
}

async fn a_job_of_pg_boss_whose_worker_is_killed_is_finished_and_completed_there_once(stage: &Stage) {
    let database = Database::create_empty().await;
    let application = Application { node: Program::new(pgboss::node()), dsn: database.url().to_owned() };
    let _watching = application.watch().await;
    let worker = || stage.program.start_with(&["worker"], &[("STARGATE_PGBOSS_DSN", database.url())]);
    let item = application.call(&["send", r#"{"n":7}"#, r#"{"retryLimit":3,"expireInSeconds":5}"#]);

    let mut first = worker();
    first.ready().await;
    let id = only_job(stage, &item).await;
    eventually(PATIENCE, "the program to run", || async {
        match runs(stage).as_str() {
            "1\n" => Ok(()),
            other => Err(format!("{other:?}; {}", first.log())),
        }
    })
    .await;
    assert_eq!(application.show(&item)["state"], "active");
    first.kill();
    assert_eq!(application.show(&item)["state"], "active", "not ended, and not given to anybody else");

    let mut second = worker();
    second.ready().await;
    std::fs::write(stage.home().join("go-2"), "").unwrap();
    let job = stage.ends(id, State::Done).await;
    assert_eq!((job.attempt_count, job.crash_count), (2, 1), "{job:?}");
    let payload: Value = serde_json::from_str(job.payload.get()).unwrap();
    assert_eq!(payload, json!({ "n": 7 }));
    let shown = eventually(PATIENCE, "the end in pg-boss", || async {
        let shown = application.show(&item);
        if shown["state"] == "completed" { Ok(shown) } else { Err(format!("{shown}; {}", second.log())) }
    })
    .await;
    assert_eq!((&shown["output"], &shown["retryCount"]), (&json!({ "answer": 42 }), &json!(1)), "{shown}");
    assert_eq!(runs(stage), "1\n2\n", "the attempt that was killed, and the one that ended");
    assert_eq!(only_job(stage, &item).await, id, "it was taken in once");
    second.terminate();
    assert!(second.ended(PATIENCE).await.success(), "{}", second.log());
    assert_eq!(application.show(&item), shown, "it was ended once");
    database.remove().await;
}

/// The one job in our store.
async fn only_job(stage: &Stage, item: &str) -> JobId {
    eventually(PATIENCE, &format!("a job for {item}"), || async {
        let filter = JobFilter { kind: Some("work".to_owned()), limit: 10, ..JobFilter::default() };
        let jobs = stage.store.jobs(filter).await.unwrap();
        assert!(jobs.len() < 2, "taken in twice: {jobs:?}");
        jobs.first().map(|job| job.id).ok_or_else(|| "none".to_owned())
    })
    .await
}

fn runs(stage: &Stage) -> String {
    std::fs::read_to_string(stage.home().join("runs.log")).unwrap_or_default()
}

struct Application {
    node: Program,
    dsn: String,
}

impl Application {
    async fn watch(&self) -> Running {
        let folder = pgboss::folder();
        let watching =
            self.node.start(&["-e", APPLICATION, "--", folder.to_str().unwrap(), &self.dsn, "watch"]);
        eventually(PATIENCE, "pg-boss", || {
            let log = watching.log();
            async move { if log.contains("watching") { Ok(()) } else { Err(log) } }
        })
        .await;
        watching
    }

    fn call(&self, what: &[&str]) -> String {
        let folder = pgboss::folder();
        let start = ["-e", APPLICATION, "--", folder.to_str().unwrap(), &self.dsn];
        self.node.answer(&[&start, what].concat())
    }

    /// The job as pg-boss shows it.
    fn show(&self, item: &str) -> Value {
        serde_json::from_str(&self.call(&["show", item])).unwrap()
    }
}
