//! The service and its handle, with the simplest of locks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use stargate_base::Tasks;
use stargate_leader::boot::{Clock as _, ManualClock};
use stargate_leader::lease::{Acquired, Bid, Inspection, Released, Renewed};
use stargate_leader::{
    Epoch, Epochs, Error, Holder, Lease, MemoryEpochs, Phase, Reason, Result, Service, Unlocked,
};
use stargate_testkit::eventually;

use crate::nodes::{Node, PATIENCE, config};

const TTL: Duration = Duration::from_secs(30);

fn start(epochs: &Arc<MemoryEpochs>) -> Node {
    Node::start(config("a", TTL), Arc::new(Unlocked), epochs.clone())
}

#[tokio::test]
async fn a_single_node_leads_at_once_and_says_so() {
    let epochs = Arc::default();
    let node = start(&epochs);
    let guard = node.leads().await;
    assert!(node.leadership.is_leader() && guard.is_valid());
    assert_eq!(guard.epoch().get(), 1);
    let standing = node.leadership.standing();
    assert_eq!(
        (standing.phase, standing.term, standing.trouble),
        (Phase::Leader, node.leadership.current(), None)
    );
    assert_eq!(node.leadership.known_leader().as_ref(), Some(node.leadership.instance()));
    let left = node.leadership.lease_left().unwrap();
    assert!(left > TTL / 2 && left <= TTL - TTL / 15, "{left:?}");
    drop(guard);
    node.stop().await;
}

#[tokio::test]
async fn stepping_down_waits_for_the_work_and_refuses_new_work_meanwhile() {
    let epochs = Arc::<MemoryEpochs>::default();
    // Its clock stands still: patience does not run out.
    let clock = Arc::new(ManualClock::default());
    let node = Node::start_with_clock(config("a", TTL), Arc::new(Unlocked), epochs.clone(), clock);
    let guard = node.leads().await;
    let leadership = node.leadership.clone();
    let tasks = Tasks::new();
    let stepping = tasks.spawn(async move { leadership.step_down().await });
    tokio::time::timeout(PATIENCE, guard.stopping().cancelled()).await.expect("the work is told");
    assert!(!node.leadership.is_leader() && !guard.is_valid());
    let refused = node.leadership.guard().unwrap_err();
    assert_eq!((refused.code(), refused.to_string().as_str()), ("NOT_LEADER", "this node is not the leader"));
    assert!(!stepping.is_finished());
    assert_eq!(epochs.records()[0].ended, None);
    // It may finish what it began.
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    drop(guard);
    stepping.await.unwrap().unwrap();
    assert_eq!(node.leadership.standing().phase, Phase::Standby);
    let ended = || async {
        match epochs.records()[0].ended {
            Some(reason) => Ok(reason),
            None => Err("not recorded".to_owned()),
        }
    };
    assert_eq!(eventually(PATIENCE, "the record of the end", ended).await, Reason::StepDown);
    node.stop().await;
}

#[tokio::test]
async fn stepping_down_drops_a_write_that_takes_too_long() {
    let epochs = Arc::<MemoryEpochs>::default();
    let clock = ManualClock::default();
    let node =
        Node::start_with_clock(config("a", TTL), Arc::new(Unlocked), epochs.clone(), Arc::new(clock.clone()));
    let guard = node.leads().await;
    let write = async {
        // The guard goes with the write.
        let guard = guard;
        guard.run(std::future::pending::<()>()).await
    };
    let stopping = async {
        let stepping = node.leadership.step_down();
        let patience = async {
            while node.leadership.is_leader() {
                tokio::task::yield_now().await;
            }
            clock.advance(Duration::from_millis(500));
        };
        tokio::join!(stepping, patience).0
    };
    let both = async { tokio::join!(write, stopping) };
    let (written, stepped) = tokio::time::timeout(PATIENCE, both).await.expect("an end");
    assert!(matches!(written, Err(Error::NotLeader { .. })), "{written:?}");
    stepped.unwrap();
    node.stop().await;
}

#[tokio::test]
async fn stepping_down_is_refused_on_a_standby() {
    let (_service, leadership) =
        Service::new(config("a", TTL), Arc::new(Unlocked), Arc::<MemoryEpochs>::default());
    assert!(matches!(leadership.step_down().await, Err(Error::NotLeader { leader: None })));
}

#[tokio::test]
async fn the_clock_ends_a_term_by_itself() {
    let clock = ManualClock::default();
    let epochs = Arc::<MemoryEpochs>::default();
    let (service, leadership) =
        Service::with_clock(config("a", TTL), Arc::new(Unlocked), epochs.clone(), Arc::new(clock.clone()));
    let tasks = Tasks::new();
    tasks.spawn(service.run(tasks.stopping()));
    let guard = tokio::time::timeout(PATIENCE, leadership.acquired()).await.unwrap();
    // No event, no task, no flag: only the clock has moved. Nothing else runs before the next await.
    clock.advance(TTL - TTL / 15);
    assert!(!leadership.is_leader() && !guard.is_valid());
    assert!(leadership.guard().is_err());
    let dropped = guard.run(std::future::pending::<()>()).await;
    assert!(matches!(dropped, Err(Error::NotLeader { .. })), "the work is dropped");
    drop(guard);
    let next = tokio::time::timeout(PATIENCE, leadership.acquired()).await.unwrap();
    assert_eq!((next.epoch().get(), epochs.records()[0].ended), (2, Some(Reason::Expired)));
    drop(next);
    tasks.join().await;
}

#[tokio::test]
async fn waking_up_from_a_suspend_ends_the_term() {
    let clock = ManualClock::default();
    let epochs = Arc::<MemoryEpochs>::default();
    let (service, leadership) =
        Service::with_clock(config("a", TTL), Arc::new(Unlocked), epochs.clone(), Arc::new(clock.clone()));
    let tasks = Tasks::new();
    tasks.spawn(service.run(tasks.stopping()));
    let guard = tokio::time::timeout(PATIENCE, leadership.acquired()).await.unwrap();
    let before = clock.now();
    clock.suspend(Duration::from_secs(2));
    assert_eq!(clock.now().since(before), Duration::from_secs(2));
    tokio::time::timeout(PATIENCE, guard.stopping().cancelled())
        .await
        .expect("noticed without any other event");
    drop(guard);
    let next = tokio::time::timeout(PATIENCE, leadership.acquired()).await.unwrap();
    assert_eq!((next.epoch().get(), epochs.records()[0].ended), (2, Some(Reason::Suspended)));
    drop(next);
    tasks.join().await;
}

#[tokio::test]
async fn work_of_each_term_is_started_stopped_and_started_again() {
    let epochs = Arc::<MemoryEpochs>::default();
    // Short, because a node that stepped down waits before it leads again.
    let node = Node::start(config("a", Duration::from_secs(3)), Arc::new(Unlocked), epochs.clone());
    let seen = Arc::new(AtomicU32::new(0));
    let (leadership, count) = (node.leadership.clone(), Arc::clone(&seen));
    let tasks = Tasks::new();
    let stop = tasks.stopping();
    tasks.spawn(async move {
        leadership
            .while_leading(stop, |guard| {
                let count = Arc::clone(&count);
                async move {
                    count.fetch_add(1, Ordering::SeqCst);
                    guard.stopping().cancelled().await;
                }
            })
            .await;
    });
    let started = |wanted| {
        let seen = Arc::clone(&seen);
        eventually(PATIENCE, "the work to start", move || {
            let now = seen.load(Ordering::SeqCst);
            async move { if now == wanted { Ok(()) } else { Err(format!("started {now} times")) } }
        })
    };
    started(1).await;
    node.leadership.step_down().await.unwrap();
    assert!(!node.leadership.is_leader());
    started(2).await;
    node.stop().await;
    tasks.join().await;
    assert_eq!(epochs.records().len(), 2);
}

#[tokio::test]
async fn a_second_node_without_lock_deposes_the_first_one() {
    let epochs = Arc::default();
    let a = start(&epochs);
    let guard = a.leads().await;
    let b = start(&epochs);
    drop(b.leads().await);
    // The store refuses the first node's next write, and the first node is told.
    assert!(!epochs.accepts(guard.epoch()));
    guard.deposed();
    tokio::time::timeout(PATIENCE, guard.stopping().cancelled()).await.expect("the term ends");
    assert!(!a.leadership.is_leader() && b.leadership.is_leader());
    let trouble = a.leadership.standing().trouble.expect("what is wrong");
    for way in ["leader.backend = \"redis\"", "several machines", "on one machine"] {
        assert!(trouble.contains(way), "{trouble}");
    }
    drop(guard);
    a.stop().await;
    b.stop().await;
    assert_eq!(epochs.records()[0].ended, Some(Reason::Deposed));
}

/// A lock and a store that write down in which order they are told about an end.
#[derive(Debug, Default)]
struct Noting(Mutex<Vec<&'static str>>, MemoryEpochs);

#[async_trait]
impl Epochs for Noting {
    async fn issue(&self, holder: &Holder) -> Result<Epoch> {
        self.1.issue(holder).await
    }

    async fn ended(&self, epoch: Epoch, reason: Reason) -> Result<()> {
        // Slower than giving the lock back.
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.0.lock().expect("no panic while noting").push("recorded");
        self.1.ended(epoch, reason).await
    }
}

#[async_trait]
impl Lease for Noting {
    fn place(&self) -> String {
        Unlocked.place()
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn acquire(&self, bid: &Bid) -> Result<Acquired> {
        Unlocked.acquire(bid).await
    }

    async fn renew(&self, bid: &Bid) -> Result<Renewed> {
        Unlocked.renew(bid).await
    }

    async fn release(&self, bid: &Bid) -> Result<Released> {
        self.0.lock().expect("no panic while noting").push("released");
        Unlocked.release(bid).await
    }

    async fn inspect(&self) -> Result<Inspection> {
        Unlocked.inspect().await
    }
}

#[tokio::test]
async fn the_end_of_a_term_is_recorded_before_the_lock_is_given_back() {
    let both = Arc::new(Noting::default());
    let node = Node::start(config("a", TTL), both.clone(), both.clone());
    drop(node.leads().await);
    node.leadership.step_down().await.unwrap();
    assert_eq!(*both.0.lock().unwrap(), ["recorded", "released"]);
    node.stop().await;
}

/// Log lines, kept for a look.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic while writing").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_tells_when_a_term_begins_and_why_it_ends() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    // This runtime has one thread, so the node logs here too.
    let logging = tracing::subscriber::set_default(subscriber);
    let node = start(&Arc::default());
    drop(node.leads().await);
    node.leadership.step_down().await.unwrap();
    node.stop().await;
    drop(logging);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let told = |words: [&str; 3]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(told(["became leader", "epoch=1", "instance=\"a\""]), "{text}");
    assert!(told(["lost leadership", "epoch=1", "reason=step-down"]), "{text}");
}

/// A store that refuses the first so many times.
#[derive(Debug)]
struct Reluctant(AtomicU32, MemoryEpochs);

#[async_trait]
impl Epochs for Reluctant {
    async fn issue(&self, holder: &Holder) -> Result<Epoch> {
        if self.0.fetch_sub(1, Ordering::SeqCst) > 1 {
            return Err(Error::Epoch { problem: "busy".to_owned() });
        }
        self.1.issue(holder).await
    }

    async fn ended(&self, epoch: Epoch, reason: Reason) -> Result<()> {
        self.1.ended(epoch, reason).await
    }
}

#[tokio::test]
async fn a_store_that_issues_no_epoch_keeps_the_node_from_leading_until_it_does() {
    let epochs = Arc::new(Reluctant(AtomicU32::new(3), MemoryEpochs::default()));
    let node = Node::start(config("a", Duration::from_millis(600)), Arc::new(Unlocked), epochs);
    let mut changes = node.leadership.watch();
    tokio::time::timeout(PATIENCE, async {
        while node.leadership.standing().trouble.is_none() {
            assert!(changes.changed().await);
        }
    })
    .await
    .expect("the trouble is told");
    assert_eq!(node.leads().await.epoch().get(), 1);
    assert_eq!(node.leadership.standing().trouble, None);
    node.stop().await;
}
