//! Applications that enqueue with SQL, in their own transactions, and people with psql.

use stargate_queue::job::Stage;
use stargate_queue::store::ClaimedJob;
use stargate_queue::{Due, JobId, NewJob, State, Store};
use stargate_testkit::eventually;

use crate::{PATIENCE, claim, connect, database, done, new, worker};

const COUNT: &str = "select count(*) from stargate.job";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_enqueued_in_a_transaction_that_is_rolled_back_never_was() {
    let database = database().await;
    let client = database.client().await;
    let count = async || -> i64 { client.query_one(COUNT, &[]).await.unwrap().get(0) };
    let script = "begin; select stargate.enqueue('a', '{\"x\": 1}'); select stargate.enqueue_many('b', array['1', '2']::jsonb[]); rollback";
    client.batch_execute(script).await.unwrap();
    assert_eq!(count().await, 0);
    client.batch_execute(&script.replace("rollback", "commit")).await.unwrap();
    assert_eq!(count().await, 3);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_enqueues_with_the_row_it_is_about() {
    let database = database().await;
    let client = database.client().await;
    let script = "
        create table customer (id bigint primary key);
        create function welcome() returns trigger language plpgsql as $$
        begin
            perform stargate.enqueue('a', jsonb_build_object('customer', new.id), unique_key => 'welcome ' || new.id);
            return new;
        end $$;
        create trigger welcome after insert on customer for each row execute function welcome();
        insert into customer values (7), (8);";
    client.batch_execute(script).await.unwrap();
    client.batch_execute("begin; insert into customer values (9); rollback").await.unwrap();
    let store = connect(database.url()).await;
    let me = worker(&store).await;
    let payloads: Vec<String> =
        claim(&store, me).await.iter().map(|job| job.payload.get().to_owned()).collect();
    assert_eq!(payloads, [r#"{"customer": 7}"#, r#"{"customer": 8}"#]);
    drop((store, client));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_library_refuses_sql_refuses_in_the_same_words() {
    let database = database().await;
    let client = database.client().await;
    let name = "is not a name: 1 to 100 letters, digits and . _ : / - are allowed";
    let key = "bytes; allowed are 1 to 255 without NUL";
    let past = "s in the past; leave it out to run the job at once";
    let ahead = "run_at lies more than ten years ahead; is it in milliseconds?";
    let cases = [
        ("'nope'", "unknown kind \"nope\"; known kinds: a, b".to_owned()),
        ("'no spaces'", format!("kind \"no spaces\" {name}")),
        ("''", format!("kind \"\" {name}")),
        ("null", format!("kind \"\" {name}")),
        ("E'a\\n'", format!("kind \"a\\n\" {name}")),
        ("'ä'", format!("kind \"ä\" {name}")),
        ("repeat('x', 101)", name.to_owned()),
        ("'a', queue => 'no spaces'", format!("queue \"no spaces\" {name}")),
        ("'a', queue => null", format!("queue \"\" {name}")),
        ("'a', null", "payload is null".to_owned()),
        ("'a', priority => -1", "priority is -1; allowed are 0 (lowest) to 9999 (runs first)".to_owned()),
        ("'a', priority => 10000", "priority is 10000; allowed are 0 (lowest) to 9999 (runs first)".to_owned()),
        ("'a', priority => 100000", "priority is 100000".to_owned()),
        ("'a', priority => null", "priority is null".to_owned()),
        ("'a', max_attempts => 0", "max_attempts is 0; allowed are 1 to 1000".to_owned()),
        ("'a', max_attempts => 70000", "max_attempts is 70000".to_owned()),
        ("'a', run_at => now() - interval '2 minutes'", format!("run_at lies 120 {past}")),
        ("'a', run_at => '-infinity'", "in the past".to_owned()),
        ("'a', run_at => now() + interval '11 years'", ahead.to_owned()),
        ("'a', run_at => 'infinity'", ahead.to_owned()),
        ("'a', delay => interval '11 years'", ahead.to_owned()),
        ("'a', delay => interval '-1 hour'", format!("run_at lies 3600 {past}")),
        ("'a', unique_key => ''", format!("unique_key \"\" has 0 {key}")),
        ("'a', unique_key => repeat('k', 256)", format!("has 256 {key}")),
        ("'a', limit_key => ''", format!("limit_key \"\" has 0 {key}")),
        ("'a', limit_key => repeat('ä', 128)", format!("has 256 {key}")),
        ("'a', to_jsonb(repeat('x', 1048576))", "payload has 1048578 bytes; at most 1048576 are allowed; store the data elsewhere and send a reference".to_owned()),
        ("'a', (repeat('[', 501) || repeat(']', 501))::jsonb", "payload is nested more than 500 levels deep".to_owned()),
        ("'a', after => array(select generate_series(1, 1001))", "after names 1001 jobs; at most 1000 are allowed".to_owned()),
    ];
    for (arguments, words) in &cases {
        let statement = format!("select stargate.enqueue({arguments})");
        let error = client.query(&statement, &[]).await.expect_err(arguments);
        let error = error.as_db_error().unwrap_or_else(|| panic!("{arguments}: {error:?}"));
        assert!(error.message().contains(words.as_str()), "{arguments}: {}", error.message());
        assert_eq!(error.code().code(), "22023", "{arguments}: {}", error.message());
    }
    for arguments in [
        "'nope', array['1']::jsonb[]",
        "'a', array['1', null]::jsonb[]",
        "'a', null",
        "'no spaces', array['1']::jsonb[]",
    ] {
        let error = client.query(&format!("select stargate.enqueue_many({arguments})"), &[]).await;
        let error = error.expect_err(arguments);
        assert_eq!(error.code().map(|code| code.code()), Some("22023"), "{arguments}: {error:?}");
    }
    let error = client.query("select stargate.enqueue('a', after => array[404])", &[]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code().code(), error.message()), ("SG404", "no job 404"));
    let count: i64 = client.query_one(COUNT, &[]).await.unwrap().get(0);
    assert_eq!(count, 0, "something that was refused is there");
    drop(client);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unique_keys_parents_delays_and_limits_mean_the_same_in_sql() {
    let database = database().await;
    let client = database.client().await;
    let store = connect(database.url()).await;
    let me = worker(&store).await;
    let enqueue = async |arguments: &str| -> i64 {
        client.query_one(&format!("select stargate.enqueue({arguments})"), &[]).await.unwrap().get(0)
    };
    let parent = enqueue("'a', unique_key => 'k'").await;
    assert_eq!(enqueue("'a', unique_key => 'k'").await, parent, "the job that holds the key");
    let mut same = new("b");
    same.unique_key = Some("k".into());
    let answer = store.enqueue(vec![same]).await.unwrap()[0];
    assert_eq!((answer.id.0, answer.existing), (parent, true));
    let child = enqueue(&format!("'b', after => array[{parent}, {parent}]")).await;
    let late = enqueue("'a', delay => interval '1 hour'").await;
    let at = enqueue("'a', run_at => now() + interval '1 day'").await;
    client
        .execute("insert into stargate.limit_rule (pattern, concurrency) values ('t*', 1)", &[])
        .await
        .unwrap();
    let keyed = [enqueue("'a', limit_key => 't1'").await, enqueue("'a', limit_key => 't1'").await];
    let urgent = enqueue("'a', '[1]', 'q', 9").await;

    let first = claim(&store, me).await;
    let ids: Vec<i64> = first.iter().map(|job| job.fence.job.0).collect();
    // Having served the urgent one, fair sharing turns to the key.
    assert_eq!(ids, [urgent, keyed[0], parent], "by priority; one of a key; neither child nor delayed");
    let settled: Vec<_> = first.iter().map(done).collect();
    store.settle(settled).await.unwrap();
    let mut ids: Vec<i64> = claim(&store, me).await.iter().map(|job| job.fence.job.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, [child, keyed[1]]);
    for id in [late, at] {
        let job = store.job(JobId(id)).await.unwrap().unwrap();
        assert_eq!((job.state, job.stage), (State::Queued, Some(Stage::Delayed)));
    }
    assert_ne!(enqueue("'a', unique_key => 'k'").await, parent, "the key is free again");
    drop((store, client));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_jobs_at_once_keep_their_order() {
    let database = database().await;
    let client = database.client().await;
    let store = connect(database.url()).await;
    let me = worker(&store).await;
    let many = "select stargate.enqueue_many('a', array(select to_jsonb(n) from generate_series(1, 50) n))";
    let ids: Vec<i64> = client.query(many, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let claimed = claim(&store, me).await;
    assert_eq!(claimed.iter().map(|job| job.fence.job.0).collect::<Vec<_>>(), ids);
    let payloads: Vec<&str> = claimed.iter().map(|job| job.payload.get()).collect();
    assert_eq!(payloads, (1..=50).map(|n| n.to_string()).collect::<Vec<_>>());
    let none = client.query("select stargate.enqueue_many('a', '{}')", &[]).await.unwrap();
    assert!(none.is_empty());
    drop((store, client));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_view_shows_all_jobs_with_the_documented_columns() {
    let database = database().await;
    let client = database.client().await;
    let store = connect(database.url()).await;
    let me = worker(&store).await;
    let finished = store.enqueue(vec![new("a")]).await.unwrap()[0].id;
    let job = claim(&store, me).await.remove(0);
    store.settle(vec![done(&job)]).await.unwrap();
    let running = store.enqueue(vec![new("b")]).await.unwrap()[0].id;
    claim(&store, me).await;
    let waiting =
        store.enqueue(vec![NewJob { limit_key: Some("t".into()), ..new("a") }]).await.unwrap()[0].id;

    let columns = "select string_agg(attname, ' ' order by attnum) from pg_attribute \
                   where attrelid = 'stargate.jobs'::regclass and attnum > 0";
    let columns: String = client.query_one(columns, &[]).await.unwrap().get(0);
    assert_eq!(
        columns,
        "id kind queue state stage priority attempt_count max_attempts crash_count progress payload result error worker \
         run_at created_at started_at finished_at last_heartbeat_at lease_expires_at unique_key limit_key trace_id \
         cancel_requested"
    );
    let rows = "select id, kind, state, stage, worker, lease_expires_at is not null, finished_at is not null, limit_key \
                from stargate.jobs order by id";
    let rows = client.query(rows, &[]).await.unwrap();
    type Shown = (i64, String, String, Option<String>, Option<String>, bool, bool, Option<String>);
    let shown: Vec<Shown> = rows
        .iter()
        .map(|r| (r.get(0), r.get(1), r.get(2), r.get(3), r.get(4), r.get(5), r.get(6), r.get(7)))
        .collect();
    let text = |text: &str| Some(text.to_owned());
    let expected: [Shown; 3] = [
        (finished.0, "a".into(), "done".into(), None, text("w"), false, true, None),
        (running.0, "b".into(), "processing".into(), text("processing"), text("w"), true, false, None),
        (waiting.0, "a".into(), "queued".into(), text("ready"), None, false, false, text("t")),
    ];
    assert_eq!(shown, expected);
    drop((store, client));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_enqueued_with_sql_wakes_a_waiting_store_when_it_is_committed() {
    let database = database().await;
    let client = database.client().await;
    let store = connect(database.url()).await;
    let mut wakes = store.wakes();
    // Opening the ear wakes once.
    eventually(PATIENCE, "the ear", || {
        let heard = *wakes.borrow_and_update() > 0;
        async move { if heard { Ok(()) } else { Err("not yet".to_owned()) } }
    })
    .await;
    for statement in
        ["select stargate.enqueue('a')", "select stargate.enqueue_many('a', array['1']::jsonb[])"]
    {
        client.batch_execute(&format!("begin; {statement}")).await.unwrap();
        assert!(!wakes.has_changed().unwrap(), "{statement} woke before the commit");
        client.batch_execute("commit").await.unwrap();
        tokio::time::timeout(PATIENCE, wakes.changed()).await.expect("a wake-up").unwrap();
    }
    drop((store, client));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remembered_lane_that_somebody_deleted_loses_no_job() {
    let database = database().await;
    let client = database.client().await;
    let store = connect(database.url()).await;
    let me = worker(&store).await;
    let plain = || vec![new("a")];
    let with_key = || vec![NewJob { unique_key: Some("k".into()), ..new("a") }];
    let delayed = || vec![NewJob { due: Due::In(std::time::Duration::from_micros(1)), ..new("a") }];
    let many = || vec![new("a"), new("b"), new("a")];
    for (name, jobs) in [
        ("plain", &plain as &dyn Fn() -> Vec<NewJob>),
        ("with a key", &with_key),
        ("delayed", &delayed),
        ("many", &many),
    ] {
        for jobs in [new("a"), new("b")] {
            store.enqueue(vec![jobs]).await.unwrap();
        }
        let held = claim(&store, me).await;
        store.settle(held.iter().map(done).collect()).await.unwrap();
        client.batch_execute("delete from stargate.job_history; delete from stargate.lane").await.unwrap();
        let accepted = store.enqueue(jobs()).await;
        let mut accepted: Vec<_> = accepted.unwrap().iter().map(|one| one.id).collect();
        accepted.sort_unstable();
        let given = tokio::sync::Mutex::new(Vec::new());
        eventually(PATIENCE, "what was accepted to be given out", || async {
            let mut given = given.lock().await;
            given.extend(claim(&store, me).await);
            let mut ids: Vec<_> = given.iter().map(|job: &ClaimedJob| job.fence.job).collect();
            ids.sort_unstable();
            if ids == accepted { Ok(()) } else { Err(format!("{name}: {ids:?} of {accepted:?}")) }
        })
        .await;
        let given = given.into_inner();
        store.settle(given.iter().map(done).collect()).await.unwrap();
    }
    drop((store, client));
    database.remove().await;
}
