//! Rules 24 to 28: a leader's write takes effect only while its term is the newest, and terms never overlap (INV-3).

use jiff::Timestamp;
use stargate_base::Epoch;
use stargate_queue::intake::{LinkFilter, LinkTurn, NewLink, Terms};
use stargate_queue::leadership::{SUPERSEDED, TERMS_MAX, TermRow, overlaps};
use stargate_queue::store::ClaimRequest;
use stargate_queue::{Error, SharedStore};

use super::prelude::*;

/// Rounds of the race between writers and a new term.
const ROUNDS: u64 = 20;
/// Writes after which a writer should have noticed that its term is over.
const WRITES_MAX: usize = 5000;

/// Begins a term after the newest.
async fn begin(store: &SharedStore, instance: &str) -> Epoch {
    let expected = store.epoch().await.unwrap();
    store.term_begin(instance, None, expected).await.unwrap()
}

async fn terms(f: &Fixture) -> Vec<TermRow> {
    f.store.terms(TERMS_MAX).await.unwrap()
}

fn is_deposed<T: std::fmt::Debug>(result: Result<T, Error>, epoch: Epoch, current: Epoch, what: &str) {
    match result {
        Err(Error::Deposed { epoch: e, current: c }) => assert_eq!((e, c), (epoch, current), "{what}"),
        other => panic!("{what} of a leader whose term is over was answered {other:?}"),
    }
}

pub async fn the_first_epoch_is_one_and_each_next_one_higher(f: &Fixture) {
    assert_eq!(f.store.epoch().await.unwrap(), None, "nobody has led yet");
    assert_eq!(terms(f).await, []);
    for number in 1..4 {
        assert_eq!(begin(&f.store, "node").await, Epoch::new(number));
        assert_eq!(f.store.epoch().await.unwrap(), Some(Epoch::new(number)));
        assert_eq!(f.another().await.epoch().await.unwrap(), Some(Epoch::new(number)), "elsewhere too");
    }
}

pub async fn a_term_reads_back_as_it_began(f: &Fixture) {
    let address = "http://[fd00::1]:8080/ü";
    let epoch = f.store.term_begin("node-ä", Some(address), None).await.unwrap();
    let began = TermRow {
        epoch,
        instance: "node-ä".to_owned(),
        address: Some(address.to_owned()),
        began_at: f.now(),
        ended_at: None,
        reason: None,
    };
    assert_eq!(terms(f).await, [began]);
}

pub async fn a_term_begins_only_from_the_epoch_its_caller_saw(f: &Fixture) {
    let first = begin(&f.store, "a").await;
    let second = begin(&f.store, "b").await;
    let before = terms(f).await;
    for seen in [None, Some(first), Some(Epoch::new(second.get() + 1)), Some(Epoch::new(u64::MAX))] {
        let late = f.store.term_begin("late", None, seen).await.unwrap_err();
        assert!(matches!(late, Error::Conflict { .. }), "seen {seen:?}: {late:?}");
    }
    assert_eq!(f.store.epoch().await.unwrap(), Some(second), "nobody was deposed");
    assert_eq!(terms(f).await, before);
    f.store.under(second).pause(PauseTarget::Kind("k".into())).await.unwrap();
}

pub async fn racing_candidates_begin_one_term(f: &Fixture) {
    let stores = [f.store.clone(), f.another().await];
    for round in 1..=5 {
        let expected = f.store.epoch().await.unwrap();
        let begun = race(8, |number| {
            let store = stores[number % 2].clone();
            async move { store.term_begin(&format!("node-{number}"), None, expected).await }
        })
        .await;
        let won: Vec<Epoch> = begun.iter().filter_map(|begun| begun.as_ref().ok().copied()).collect();
        assert_eq!(won, [Epoch::new(round)], "{begun:?}");
        let lost = begun.iter().filter(|begun| matches!(begun, Err(Error::Conflict { .. }))).count();
        assert_eq!(lost, 7, "{begun:?}");
    }
    assert_eq!(overlaps(&terms(f).await), []);
}

pub async fn a_term_that_begins_ends_the_one_before_it_at_that_time(f: &Fixture) {
    begin(&f.store, "a").await;
    f.advance(Duration::from_secs(60));
    begin(&f.store, "b").await;
    let found = terms(f).await;
    assert_eq!(found[1].ended_at, Some(f.now()));
    assert_eq!(found[1].reason.as_deref(), Some(SUPERSEDED));
    assert_eq!((found[0].began_at, found[0].ended_at), (f.now(), None));
    assert_eq!(overlaps(&found), []);
}

pub async fn a_term_ends_once(f: &Fixture) {
    let first = begin(&f.store, "a").await;
    f.advance(Duration::from_secs(10));
    f.store.term_end(first, "step-down").await.unwrap();
    let ended = terms(f).await;
    assert_eq!((ended[0].ended_at, ended[0].reason.as_deref()), (Some(f.now()), Some("step-down")));
    f.advance(Duration::from_secs(10));
    f.store.term_end(first, "shutdown").await.unwrap();
    f.store.term_end(Epoch::new(77), "shutdown").await.unwrap();
    assert_eq!(terms(f).await, ended, "a second report changes nothing");
    let second = begin(&f.store, "b").await;
    f.store.term_end(first, "lost").await.unwrap();
    let both = terms(f).await;
    assert_eq!(both[1], ended[0], "nor does one about an older term, nor the next term");
    assert_eq!((both[0].epoch, both[0].ended_at), (second, None), "which goes on");
    assert_eq!(f.store.epoch().await.unwrap(), Some(second));
}

pub async fn a_term_that_has_ended_writes_nothing_though_no_other_has_begun(f: &Fixture) {
    let first = begin(&f.store, "a").await;
    f.store.under(first).enqueue(vec![job()]).await.unwrap();
    f.store.term_end(first, "lost").await.unwrap();
    // Here, where the lane of the job is known, and elsewhere.
    for old in [f.store.under(first), f.another().await.under(first)] {
        is_deposed(old.enqueue(vec![job()]).await, first, first, "an enqueue");
        is_deposed(old.pause(PauseTarget::Queue("default".into())).await, first, first, "a pause");
    }
    assert_eq!(f.store.pauses().await.unwrap(), []);
    assert_eq!(f.store.depth(10).await.unwrap(), 1);
    f.store.enqueue(vec![job()]).await.expect("nobody's term is needed without one");
    let second = begin(&f.store, "b").await;
    is_deposed(f.store.under(first).enqueue(vec![job()]).await, first, second, "an enqueue");
}

pub async fn terms_do_not_overlap_though_the_clock_jumps_back(f: &Fixture) {
    let first = begin(&f.store, "a").await;
    f.jump_back(Duration::from_secs(3600));
    f.store.term_end(first, "suspended").await.unwrap();
    begin(&f.store, "b").await;
    f.jump_back(Duration::from_secs(3600));
    begin(&f.store, "c").await;
    let found = terms(f).await;
    assert_eq!(found.len(), 3);
    assert_eq!(overlaps(&found), [], "{found:?}");
    for term in &found {
        assert!(term.ended_at.is_none_or(|end| end >= term.began_at), "{term:?}");
    }
}

pub async fn terms_are_listed_newest_first_and_no_more_than_allowed(f: &Fixture) {
    let mut seen = None;
    for number in 0..TERMS_MAX + 2 {
        seen = Some(f.store.term_begin(&format!("node-{number}"), None, seen).await.unwrap());
    }
    assert_eq!(f.store.terms(0).await.unwrap(), []);
    let two: Vec<u64> = f.store.terms(2).await.unwrap().iter().map(|term| term.epoch.get()).collect();
    let last = u64::from(TERMS_MAX) + 2;
    assert_eq!(two, [last, last - 1]);
    for limit in [TERMS_MAX, TERMS_MAX + 1, u32::MAX] {
        let found = f.store.terms(limit).await.unwrap();
        assert_eq!(found.len(), TERMS_MAX as usize, "asked for {limit}");
        assert_eq!(overlaps(&found), []);
    }
}

pub async fn a_term_without_a_name_or_an_end_without_a_reason_is_refused(f: &Fixture) {
    for instance in ["", "a\0b"] {
        assert_eq!(f.store.term_begin(instance, None, None).await.unwrap_err().code(), "INVALID");
    }
    assert_eq!(f.store.term_begin("a", Some("\0"), None).await.unwrap_err().code(), "INVALID");
    let epoch = begin(&f.store, "a").await;
    assert_eq!(epoch, Epoch::new(1), "no number was used up");
    for reason in ["", "\0"] {
        assert_eq!(f.store.term_end(epoch, reason).await.unwrap_err().code(), "INVALID");
    }
    assert_eq!(terms(f).await[0].ended_at, None);
}

/// Something for each guarded write to work on.
struct Stage {
    failed: JobId,
    /// Two more that failed.
    failed_too: [JobId; 2],
    waiting: JobId,
    /// One more that waits.
    waiting_too: JobId,
    running: JobId,
    due: Timestamp,
}

const OLD: Duration = Duration::from_secs(86_400);

async fn stage(f: &Fixture) -> Stage {
    let worker = f.worker("w").await;
    let first = f.enqueue_all(vec![job(); 5]).await;
    let claimed = f.claim(worker, 5).await.jobs;
    for one in [&claimed[0], &claimed[3], &claimed[4]] {
        f.accept(one.fence, failed()).await;
    }
    f.done(claimed[1].fence).await;
    f.done(claimed[2].fence).await;
    f.advance(OLD);
    // The first worker's beat is long past.
    let worker = f.worker("v").await;
    let running = f.enqueue(job()).await;
    assert_eq!(f.claim_ids(worker, 1).await, [running]);
    let (waiting, waiting_too) = (f.enqueue(job()).await, f.enqueue(job()).await);
    f.store.pause(PauseTarget::Queue("paused".into())).await.unwrap();
    f.store.limit_set(limit("old:*")).await.unwrap();
    for name in ["fire", "remove"] {
        f.store.schedule_put(schedule(f, name)).await.unwrap();
    }
    let failed_too = [first[3], first[4]];
    Stage { failed: first[0], failed_too, waiting, waiting_too, running, due: f.now() }
}

fn limit(pattern: &str) -> Limit {
    Limit { pattern: pattern.into(), concurrency: Some(2), rate: None, weight: 1 }
}

fn schedule(f: &Fixture, name: &str) -> Schedule {
    Schedule {
        name: name.into(),
        cron: "*/5 * * * *".into(),
        time_zone: "UTC".into(),
        kind: WORK.into(),
        queue: "scheduled".into(),
        payload: raw(&json!({})),
        priority: 0,
        next_at: Some(f.now()),
        last_at: None,
    }
}

type Answer = Result<String, Error>;

fn text<T: std::fmt::Debug>(result: Result<T, Error>) -> Answer {
    result.map(|value| format!("{value:?}"))
}

/// One of each guarded write, in jobs also of each sort that takes another way into the store.
async fn every_guarded_write(f: &Fixture, store: &SharedStore, on: &Stage) -> Vec<(&'static str, Answer)> {
    let known = job();
    let new = NewJob { queue: "new".into(), limit_key: Some("new:key".into()), ..job() };
    let traced = NewJob { trace_id: Some("00-1-2-01".into()), ..job() };
    let unique = NewJob { unique_key: Some("u".into()), ..job() };
    let child = NewJob { after: vec![on.waiting], ..job() };
    let once = |key: &str| Once { key: key.into(), fingerprint: "f".into() };
    let purge =
        PurgeRequest { done_age: OLD / 2, failed_age: 10 * OLD, batch: 100, ..PurgeRequest::default() };
    vec![
        ("enqueue", text(store.enqueue(vec![known]).await)),
        ("enqueue into a new lane", text(store.enqueue(vec![new.clone()]).await)),
        ("enqueue of a traced job", text(store.enqueue(vec![traced]).await)),
        ("enqueue with a unique key", text(store.enqueue(vec![unique]).await)),
        ("enqueue of a child", text(store.enqueue(vec![child]).await)),
        ("enqueue_once", text(store.enqueue_once(once("k"), vec![job()]).await)),
        ("enqueue_once into a new lane", text(store.enqueue_once(once("l"), vec![new]).await)),
        ("retry", text(store.retry(on.failed).await)),
        ("retry_edited", text(store.retry_edited(on.failed_too[0], raw(&json!(7))).await)),
        ("retry_many", text(store.retry_many(vec![on.failed_too[1]]).await)),
        ("cancel_many", text(store.cancel_many(vec![on.waiting_too]).await)),
        ("cancel of a waiting job", text(store.cancel(on.waiting).await)),
        ("cancel of a running job", text(store.cancel(on.running).await)),
        ("pause", text(store.pause(PauseTarget::Kind("k".into())).await)),
        ("resume", text(store.resume(PauseTarget::Queue("paused".into())).await)),
        ("limit_set", text(store.limit_set(limit("new:*")).await)),
        ("limit_remove", text(store.limit_remove("old:*").await)),
        ("schedule_put", text(store.schedule_put(schedule(f, "new")).await)),
        ("schedule_remove", text(store.schedule_remove("remove").await)),
        ("schedule_fire", text(store.schedule_fire("fire", on.due, None).await)),
        ("purge", text(store.purge(purge).await)),
    ]
}

/// Everything a store tells, to compare before and after.
async fn world(store: &SharedStore) -> Vec<String> {
    let mut all = Vec::new();
    let jobs = store.jobs(JobFilter { limit: PAGE_MAX, ..JobFilter::default() }).await.unwrap();
    for job in &jobs {
        let events = store.events(job.id, 0, 1000).await.unwrap();
        let parents = store.parents(job.id).await.unwrap();
        all.push(format!("{job:?} {events:?} {parents:?}"));
    }
    all.push(format!("{:?}", store.queues().await.unwrap()));
    all.push(format!("{:?}", store.pauses().await.unwrap()));
    all.push(format!("{:?}", store.limits().await.unwrap()));
    all.push(format!("{:?}", store.limit_state("new:key").await.unwrap()));
    all.push(format!("{:?}", store.schedules().await.unwrap()));
    all.push(format!("{:?}", store.workers().await.unwrap()));
    all.push(format!("{:?}", store.kinds().await.unwrap()));
    all.push(format!("{:?}", store.depth(1000).await.unwrap()));
    all.push(format!("{:?}", store.oldest_ready().await.unwrap()));
    all.push(format!("{:?}", store.links(links()).await.unwrap()));
    all.push(format!("{:?} {:?}", store.epoch().await.unwrap(), store.terms(10).await.unwrap()));
    all
}

fn links() -> LinkFilter {
    LinkFilter { source: "src".into(), job: None, ended: false, after: None, limit: 100 }
}

pub async fn every_guarded_write_of_a_deposed_leader_is_refused_and_changes_nothing(f: &Fixture) {
    let on = stage(f).await;
    let old = begin(&f.store, "a").await;
    let leader = f.store.under(old);
    // Another process begins the term: nothing here has heard of it.
    let elsewhere = f.another().await;
    let new = begin(&elsewhere, "b").await;
    let before = world(&f.store).await;
    for (what, answer) in every_guarded_write(f, &leader, &on).await {
        is_deposed(answer, old, new, what);
    }
    assert_eq!(world(&f.store).await, before);
    assert_eq!(world(&elsewhere).await, before);
    let known = f.store.enqueue_once(Once { key: "k".into(), fingerprint: "g".into() }, vec![job()]).await;
    assert!(!known.unwrap()[0].existing, "a refused request does not use up its key");
}

pub async fn every_guarded_write_of_the_leader_takes_effect(f: &Fixture) {
    let on = stage(f).await;
    begin(&f.store, "a").await;
    let epoch = begin(&f.store, "b").await;
    let leader = f.another().await.under(epoch);
    for (what, answer) in every_guarded_write(f, &leader, &on).await {
        let answer = answer.unwrap_or_else(|error| panic!("{what} of the leader: {error:?}"));
        let none = ["false", "None", "[]"].contains(&answer.as_str());
        assert!(!none, "{what} found nothing to do: {answer}");
    }
    f.is(on.failed, State::Queued, "was retried").await;
    for id in on.failed_too {
        f.is(id, State::Queued, "was retried with others").await;
    }
    assert_eq!(f.job(on.failed_too[0]).await.payload.get(), "7", "was edited");
    f.is(on.waiting, State::Cancelled, "was cancelled").await;
    f.is(on.waiting_too, State::Cancelled, "was cancelled with others").await;
    assert!(f.job(on.running).await.cancel_requested);
    assert_eq!(f.store.pauses().await.unwrap(), [PauseTarget::Kind("k".into())]);
    let patterns: Vec<String> = f.store.limits().await.unwrap().into_iter().map(|l| l.pattern).collect();
    assert_eq!(patterns, ["new:*"]);
    assert_eq!(f.store.limit_state("new:key").await.unwrap().unwrap().concurrency, Some(2), "was applied");
    let names: Vec<String> = f.store.schedules().await.unwrap().into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["fire", "new"]);
}

/// The store went back: a backup was restored, or a replica that lagged behind took over.
pub async fn a_leader_that_the_store_has_not_heard_of_is_refused(f: &Fixture) {
    let on = stage(f).await;
    let nobody = f.store.under(Epoch::new(3));
    is_deposed(nobody.enqueue(vec![job()]).await, Epoch::new(3), Epoch::new(0), "an enqueue");
    let first = begin(&f.store, "a").await;
    let ahead = Epoch::new(first.get() + 5);
    let before = world(&f.store).await;
    for (what, answer) in every_guarded_write(f, &f.store.under(ahead), &on).await {
        is_deposed(answer, ahead, first, what);
    }
    assert_eq!(world(&f.store).await, before);
    f.store.under(first).enqueue(vec![job()]).await.unwrap();
}

pub async fn what_a_lease_fences_passes_under_any_epoch(f: &Fixture) {
    let old = begin(&f.store, "a").await;
    begin(&f.store, "b").await;
    let store = f.store.under(old);
    let kind = KindSpec { name: "third".into(), max_attempts: 1, max_crashes: 1 };
    store.kinds_register(vec![kind]).await.unwrap();
    let worker = store.worker_register(worker_spec("w", LEASE, LEASE)).await.unwrap();
    let id = f.enqueue(job()).await;
    let request: ClaimRequest = claim_request(worker, 10);
    let claimed = store.claim(request).await.unwrap().jobs.remove(0);
    assert_eq!(claimed.fence.job, id);
    assert!(store.beat(worker).await.unwrap().known);
    let note = Note { fence: claimed.fence, progress: Some(10), event: None };
    assert_eq!(store.note(vec![note]).await.unwrap(), [Verdict::Accepted]);
    let settlement = Settlement { fence: claimed.fence, outcome: Outcome::Done { result: None } };
    assert_eq!(store.settle(vec![settlement]).await.unwrap(), [Verdict::Accepted]);
    store.worker_remove(worker).await.unwrap();
    let kept = Terms { retry_count: 1, retry_delay_s: 7, retry_backoff: true, retry_delay_max_s: None };
    let link = NewLink { item: "1".into(), mark: "m".into(), terms: kept, job: job() };
    let linked = store.links_accept("src", vec![link]).await.unwrap();
    assert_eq!(linked.len(), 1);
    let claim = stargate_queue::intake::Claim { item: "1".into(), mark: "m".into() };
    assert_eq!(store.links_turn("src", vec![claim], LinkTurn::Hold).await.unwrap(), 1);
    let newest = store.epoch().await.unwrap();
    assert_eq!(store.term_begin("c", None, newest).await.unwrap(), Epoch::new(3));
    store.term_end(Epoch::new(3), "shutdown").await.unwrap();
}

pub async fn reading_under_an_epoch_is_the_same(f: &Fixture) {
    stage(f).await;
    let old = begin(&f.store, "a").await;
    begin(&f.store, "b").await;
    let under = f.store.under(old);
    assert_eq!(world(&under).await, world(&f.store).await);
    assert_eq!(under.facts(), f.store.facts());
    assert_eq!(under.now().await.unwrap(), f.store.now().await.unwrap());
    assert_eq!(under.check().await.unwrap().schema, f.store.check().await.unwrap().schema);
    let mut wakes = under.wakes();
    wakes.borrow_and_update();
    f.enqueue(job()).await;
    let woken = tokio::time::timeout(Duration::from_secs(20), wakes.changed()).await;
    assert!(woken.is_ok(), "it hears of what the store without an epoch does");
}

pub async fn a_refused_write_does_not_take_its_neighbours_with_it(f: &Fixture) {
    f.enqueue(job()).await;
    let old = begin(&f.store, "a").await;
    let new = begin(&f.store, "b").await;
    let answers = race(120, |number| {
        let store = match number % 3 {
            0 => f.store.clone(),
            1 => f.store.under(old),
            _ => f.store.under(new),
        };
        async move { (number, store.enqueue(vec![job()]).await) }
    })
    .await;
    for (number, answer) in answers {
        match number % 3 {
            1 => is_deposed(answer, old, new, "an enqueue among others"),
            _ => assert_eq!(answer.unwrap().len(), 1, "number {number}"),
        }
    }
    assert_eq!(f.store.depth(1000).await.unwrap(), 81, "those accepted and no others");
}

pub async fn a_write_that_races_a_new_term_never_commits_after_it(f: &Fixture) {
    let stores = [f.store.clone(), f.another().await];
    let mut epoch = begin(&f.store, "first").await;
    for round in 0..ROUNDS {
        let queue = format!("round-{round}");
        let writers =
            (0..6).map(|number| write_until_deposed(stores[number % 2].under(epoch), number, &queue));
        let writers = futures::future::join_all(writers);
        let successor = async {
            // Somewhere among the first writes.
            eventually(Duration::from_secs(30), "the first write", || async {
                let ready = waiting_in(&f.store, &queue).await;
                (ready > round % 4).then_some(()).ok_or_else(|| ready.to_string())
            })
            .await;
            let next = begin(&stores[(round % 2) as usize], "next").await;
            (next, waiting_in(&f.store, &queue).await)
        };
        let (accepted, (next, there)) = tokio::join!(writers, successor);
        let accepted: u64 = accepted.iter().sum();
        let after = waiting_in(&f.store, &queue).await;
        assert_eq!(after, there, "round {round}: written by epoch {epoch} after {next} was issued");
        assert_eq!(accepted, there, "round {round}: what was accepted is there, what was refused is not");
        epoch = next;
    }
}

/// Enqueues until the store refuses it; how many were accepted.
async fn write_until_deposed(store: SharedStore, number: usize, queue: &str) -> u64 {
    let mut accepted = 0;
    for count in 0..WRITES_MAX {
        let new = NewJob { queue: queue.to_owned(), ..job() };
        let written = match number % 3 {
            0 => store.enqueue(vec![new]).await,
            1 => {
                let once = Once { key: format!("{queue}-{number}-{count}"), fingerprint: "f".into() };
                store.enqueue_once(once, vec![new]).await
            }
            _ => {
                let unique = NewJob { unique_key: Some(format!("{queue}-{number}-{count}")), ..new };
                store.enqueue(vec![unique]).await
            }
        };
        match written {
            Ok(_) => accepted += 1,
            Err(Error::Deposed { .. }) => return accepted,
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("{WRITES_MAX} writes were accepted although a new term has begun")
}

async fn waiting_in(store: &SharedStore, queue: &str) -> u64 {
    let queues = store.queues().await.unwrap();
    queues.iter().find(|counts| counts.queue == queue).map_or(0, |counts| counts.ready)
}

pub async fn a_store_lives_as_long_as_somebody_has_it_under_an_epoch(f: &Fixture) {
    let epoch = begin(&f.store, "a").await;
    let store = f.another().await;
    drop(store.under(epoch));
    store.under(epoch).enqueue(vec![job()]).await.unwrap();
    let under = store.under(epoch);
    drop(store);
    under.enqueue(vec![job()]).await.unwrap();
    assert_eq!(under.depth(10).await.unwrap(), 2);
    begin(&f.store, "b").await;
    assert!(matches!(under.enqueue(vec![job()]).await, Err(Error::Deposed { .. })));
}
