//! One history: nodes, messages, faults and the clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use stargate_leader::boot::Instant;
use stargate_leader::elector::{Action, Event, Manner, Note};
use stargate_leader::lease::{Bid, Hint};
use stargate_leader::{Config, Elector, Epoch, Error, Holder, Reason, Settings};

use super::server::Server;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Faults begin after the server has become trustworthy.
const BEGIN: u64 = 40 * SECOND;
/// Faults end.
const CALM: u64 = BEGIN + 300 * SECOND;
/// The longest backoff, a lease, the startup guard, and some more.
const SETTLED: u64 = CALM + 200 * SECOND;
/// Nothing changes any more until here.
const END: u64 = SETTLED + 100 * SECOND;
/// How much of the history a failure shows.
const SHOWN: usize = 60;

/// A rule broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// Releasing deletes whatever is there.
    BareDelete,
    /// No startup guard.
    NoGuard,
    /// Grants count although no replica has them.
    NoWait,
    /// Clocks differ by up to 20 %, which the margin does not cover.
    WildClocks,
    /// A late request for an epoch is served like any other.
    LateEpochs,
}

/// What a history led to.
#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) terms: u32,
    pub(super) reasons: Vec<Reason>,
}

#[derive(Debug, Clone)]
enum Message {
    Acquire(u64, Bid),
    Renew(u64, Bid),
    Release(u64, Bid),
    Inspect(u64),
}

#[derive(Debug, Clone)]
enum What {
    /// The elector asked to be woken.
    Wake(usize, u32, u64),
    /// A request arrives at a server process.
    Request(usize, u32, usize, Message),
    /// The store is to raise the epoch, if it is still the one given.
    Issue(usize, u32, u64, u64),
    /// Something arrives at a node.
    Deliver(usize, u32, Event),
    /// Guarded work of a term has ended.
    Joined(usize, u32, u32),
    /// Something goes wrong.
    Fault,
    /// A node that crashed is started again.
    Start(usize),
    /// A node that was paused goes on; suspended if so.
    Resume(usize, bool),
    /// A node sees the new primary.
    Repoint(usize),
    /// The replica catches up.
    Link,
}

struct Node {
    elector: Option<Elector>,
    incarnation: u32,
    wakes: u64,
    work: u32,
    drift: i64,
    offset: u64,
    paused: Option<Vec<What>>,
    /// Which server process its connection leads to.
    sees: usize,
    cut: bool,
}

pub(super) struct World {
    rng: StdRng,
    flaw: Flaw,
    now: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, What>,
    nodes: Vec<Node>,
    server: Server,
    epoch: u64,
    started: u64,
    summary: Summary,
    history: Vec<String>,
    problem: Option<String>,
    /// Per mille of messages that are lost and doubled.
    loss: u32,
    double: u32,
}

impl World {
    pub(super) fn new(seed: u64, flaw: Flaw) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let replicated = rng.random_bool(0.4);
        let worst = if flaw == Flaw::WildClocks { 100_000 } else { 10_000 };
        let drift = |rng: &mut StdRng| rng.random_range(-worst..=worst);
        let server = Server::new(replicated, drift(&mut rng), flaw != Flaw::NoWait, flaw == Flaw::BareDelete);
        let nodes = (0..rng.random_range(2..=4))
            .map(|_| Node {
                elector: None,
                incarnation: 0,
                wakes: 0,
                work: 0,
                drift: drift(&mut rng),
                offset: rng.random_range(0..1_000 * SECOND),
                paused: None,
                sees: 0,
                cut: false,
            })
            .collect();
        let (loss, double) = (rng.random_range(0..200), rng.random_range(0..100));
        let mut world = Self {
            rng,
            flaw,
            now: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            events: std::collections::HashMap::new(),
            nodes,
            server,
            epoch: 0,
            started: 0,
            summary: Summary::default(),
            history: Vec::new(),
            problem: None,
            loss,
            double,
        };
        for node in 0..world.nodes.len() {
            world.after_up_to(5 * SECOND, What::Start(node));
        }
        world.at(BEGIN, What::Fault);
        world
    }

    /// Plays the history to its end.
    pub(super) fn play(mut self) -> Result<Summary, String> {
        let mut terms_settled = None;
        while let Some(Reverse((time, sequence))) = self.queue.pop() {
            if time > END {
                break;
            }
            if time > SETTLED && terms_settled.is_none() {
                terms_settled = Some(self.summary.terms);
                if self.leaders().len() != 1 {
                    return Err(self.failed("nobody leads long after the faults have ended"));
                }
            }
            self.now = time;
            let what = self.events.remove(&sequence).expect("an event for each entry");
            self.happen(what);
            let leaders = self.leaders();
            if leaders.len() > 1 {
                return Err(self.failed(&format!("two leaders: nodes {leaders:?}")));
            }
            if let Some(node) = leaders.first().filter(|node| !self.accepted(**node)) {
                return Err(self.failed(&format!("the store refuses the leader, node {node}")));
            }
            if let Some(problem) = self.problem.take() {
                return Err(self.failed(&problem));
            }
        }
        if terms_settled != Some(self.summary.terms) || self.leaders().len() != 1 {
            return Err(self.failed("the lead changes although nothing goes wrong"));
        }
        Ok(self.summary)
    }

    /// Who holds a term that is valid now, by true time. A paused node counts: it may act the moment it goes on.
    fn leaders(&self) -> Vec<usize> {
        let leads = |node: &Node| {
            let term = node.elector.as_ref().and_then(Elector::term);
            term.is_some_and(|term| node.local(self.now) < term.deadline)
        };
        (0..self.nodes.len()).filter(|n| leads(&self.nodes[*n])).collect()
    }

    /// Whether the store accepts writes of the leader. A request for an epoch that arrives late must not depose it.
    fn accepted(&self, node: usize) -> bool {
        if !matches!(self.flaw, Flaw::None | Flaw::LateEpochs) {
            // With two leaders the store refuses one of them, and the test is about the two.
            return true;
        }
        let term = self.nodes[node].elector.as_ref().and_then(Elector::term);
        term.is_none_or(|term| term.epoch.get() == self.epoch)
    }

    fn happen(&mut self, what: What) {
        // What concerns a paused node waits until it goes on.
        if let What::Wake(node, ..) | What::Deliver(node, ..) | What::Joined(node, ..) = &what
            && let Some(backlog) = &mut self.nodes[*node].paused
        {
            backlog.push(what);
            return;
        }
        match what {
            What::Wake(node, incarnation, wake) => {
                if self.nodes[node].wakes == wake {
                    self.handle(node, incarnation, Event::Tick);
                }
            }
            What::Request(node, incarnation, process, message) => {
                self.serve(node, incarnation, process, message)
            }
            What::Issue(node, incarnation, id, seen) => {
                let late = || Error::Epoch { problem: "another was issued".to_owned() };
                let raised = self.epoch == seen || self.flaw == Flaw::LateEpochs;
                self.epoch += u64::from(raised);
                let reply = Event::Issued(id, raised.then_some(Epoch::new(self.epoch)).ok_or_else(late));
                let delay = self.delay();
                self.after(delay, What::Deliver(node, incarnation, reply));
            }
            What::Deliver(node, incarnation, event) => self.handle(node, incarnation, event),
            What::Joined(node, incarnation, work) => {
                if self.nodes[node].work == work {
                    self.nodes[node].work += 1;
                    self.handle(node, incarnation, Event::Joined);
                }
            }
            What::Fault => self.fault(),
            What::Start(node) => self.start(node),
            What::Resume(node, suspended) => self.resume(node, suspended),
            What::Repoint(node) => self.nodes[node].sees = self.server.primary,
            What::Link => self.server.link(),
        }
    }

    fn start(&mut self, node: usize) {
        let mut settings = Settings::of(Holder { instance: format!("n{node}"), address: None });
        settings.startup_guard = self.flaw != Flaw::NoGuard;
        settings.renew_until_deadline = self.rng.random_bool(0.3);
        let config = Config::new(settings).expect("settings that work");
        let now = self.nodes[node].local(self.now);
        let elector = Elector::new(config, StdRng::seed_from_u64(self.rng.random()), now);
        self.nodes[node].elector = Some(elector);
        self.nodes[node].sees = self.server.primary;
        let incarnation = self.nodes[node].incarnation;
        self.note(format!("n{node} starts"));
        self.handle(node, incarnation, Event::Tick);
    }

    fn handle(&mut self, node: usize, incarnation: u32, event: Event) {
        let now = self.nodes[node].local(self.now);
        let this = &mut self.nodes[node];
        if this.incarnation != incarnation {
            return;
        }
        let Some(elector) = &mut this.elector else { return };
        if !matches!(event, Event::Tick) {
            let line = format!("n{node} {event:?}");
            self.history.push(format!("{:.3} {line}", seconds(self.now)));
        }
        let actions = elector.handle(now, event);
        this.wakes += 1;
        let wake = elector.wake().map(|at| (this.true_time(at), this.wakes));
        for action in actions {
            self.act(node, action);
        }
        if let Some((at, wake)) = wake {
            self.at(at, What::Wake(node, incarnation, wake));
        }
    }

    fn act(&mut self, node: usize, action: Action) {
        self.note(format!("n{node} → {action:?}"));
        let incarnation = self.nodes[node].incarnation;
        match action {
            Action::Acquire(id, bid) => self.send(node, Message::Acquire(id, bid)),
            Action::Renew(id, bid) => self.send(node, Message::Renew(id, bid)),
            Action::Release(id, bid) => self.send(node, Message::Release(id, bid)),
            Action::Inspect(id, _) => self.send(node, Message::Inspect(id)),
            Action::IssueEpoch(id, _) => {
                if !self.lost() {
                    let delay = self.delay();
                    self.after(delay, What::Issue(node, incarnation, id, self.epoch));
                }
            }
            Action::StartWork(term) => {
                self.summary.terms += 1;
                if term.epoch.get() <= self.started {
                    self.problem = Some(format!("epoch {} after {}", term.epoch, self.started));
                }
                self.started = term.epoch.get();
            }
            Action::StopWork(manner) => {
                let longest = if manner == Manner::AtOnce { 50 * MS } else { 8 * SECOND };
                let joined = What::Joined(node, incarnation, self.nodes[node].work);
                self.after_up_to(longest, joined);
            }
            Action::Tell(Note::LostLeadership(_, reason)) => self.summary.reasons.push(reason),
            Action::End => {
                // The process ends and is started again.
                self.crash(node);
            }
            Action::Tell(_) | Action::EndTerm(..) => {}
        }
    }

    fn send(&mut self, node: usize, message: Message) {
        let incarnation = self.nodes[node].incarnation;
        let process = self.nodes[node].sees;
        for _ in 0..self.copies(node) {
            let delay = self.delay();
            self.after(delay, What::Request(node, incarnation, process, message.clone()));
        }
    }

    fn serve(&mut self, node: usize, incarnation: u32, process: usize, message: Message) {
        self.note(format!("server {process} serves n{node} {message:?}"));
        let now = self.now;
        let released = match &message {
            Message::Release(_, bid) => Some(bid.holder.instance.clone()),
            _ => None,
        };
        let reply = match message {
            Message::Acquire(id, bid) => Event::Acquired(id, self.server.acquire(process, now, &bid)),
            Message::Renew(id, bid) => Event::Renewed(id, self.server.renew(process, now, &bid)),
            Message::Release(id, bid) => Event::Released(id, self.server.release(process, &bid)),
            Message::Inspect(id) => Event::Inspected(id, Ok(self.server.inspect(process, now))),
        };
        for _ in 0..self.copies(node) {
            let delay = self.delay();
            self.after(delay, What::Deliver(node, incarnation, reply.clone()));
        }
        if let Some(by) = released {
            for other in 0..self.nodes.len() {
                for _ in 0..self.copies(other) {
                    let delay = self.delay();
                    let incarnation = self.nodes[other].incarnation;
                    let hint = Hint::Released(Some(by.clone()));
                    self.after(delay, What::Deliver(other, incarnation, Event::Hint(hint)));
                }
            }
        }
    }

    fn fault(&mut self) {
        if self.now >= CALM {
            return self.calm();
        }
        let node = self.rng.random_range(0..self.nodes.len());
        match self.rng.random_range(0..100) {
            0..15 => self.crash(node),
            15..35 => self.pause(node),
            35..60 => {
                self.nodes[node].cut ^= true;
                if !self.nodes[node].cut {
                    let incarnation = self.nodes[node].incarnation;
                    let delay = self.delay();
                    self.after(delay, What::Deliver(node, incarnation, Event::Hint(Hint::Reachable)));
                }
                self.note(format!("n{node} cut: {}", self.nodes[node].cut));
            }
            60..68 => {
                let incarnation = self.nodes[node].incarnation;
                self.after(0, What::Deliver(node, incarnation, Event::StepDown));
            }
            68..76 => {
                let incarnation = self.nodes[node].incarnation;
                self.after(0, What::Deliver(node, incarnation, Event::Stop));
            }
            _ if !self.server.replicated() => {
                self.note("the server restarts empty".to_owned());
                self.server.restart_empty(self.now);
            }
            76..90 => {
                self.note("the replica is cut off".to_owned());
                self.server.linked = false;
                self.after_up_to(20 * SECOND, What::Link);
            }
            _ => {
                self.note("the server fails over".to_owned());
                self.server.fail_over();
                for node in 0..self.nodes.len() {
                    self.after_up_to(15 * SECOND, What::Repoint(node));
                }
                self.after_up_to(30 * SECOND, What::Link);
            }
        }
        self.after_up_to(25 * SECOND, What::Fault);
    }

    fn calm(&mut self) {
        self.note("the faults end".to_owned());
        self.loss = 0;
        self.double = 0;
        for node in 0..self.nodes.len() {
            self.nodes[node].cut = false;
            self.after(0, What::Repoint(node));
            if self.nodes[node].paused.is_some() {
                self.after(0, What::Resume(node, false));
            }
        }
        self.after(0, What::Link);
    }

    fn crash(&mut self, node: usize) {
        if self.nodes[node].elector.is_none() {
            return;
        }
        self.note(format!("n{node} dies"));
        let this = &mut self.nodes[node];
        this.elector = None;
        this.incarnation += 1;
        this.work += 1;
        this.paused = None;
        self.after_up_to(20 * SECOND, What::Start(node));
    }

    fn pause(&mut self, node: usize) {
        if self.nodes[node].paused.is_some() || self.nodes[node].elector.is_none() {
            return;
        }
        self.note(format!("n{node} is paused"));
        self.nodes[node].paused = Some(Vec::new());
        let suspended = self.rng.random_bool(0.3);
        let longest = if self.rng.random_bool(0.5) { 3 * SECOND } else { 45 * SECOND };
        self.after_up_to(longest, What::Resume(node, suspended));
    }

    fn resume(&mut self, node: usize, suspended: bool) {
        let Some(backlog) = self.nodes[node].paused.take() else { return };
        self.note(format!("n{node} goes on"));
        let incarnation = self.nodes[node].incarnation;
        if suspended {
            self.handle(node, incarnation, Event::Suspended);
        }
        for what in backlog {
            self.happen(what);
        }
        self.handle(node, incarnation, Event::Tick);
    }

    /// How often a message of a node arrives.
    fn copies(&mut self, node: usize) -> usize {
        if self.nodes[node].cut || self.lost() {
            return 0;
        }
        1 + usize::from(self.rng.random_range(0..1_000) < self.double)
    }

    fn lost(&mut self) -> bool {
        self.rng.random_range(0..1_000) < self.loss
    }

    /// Mostly short, sometimes longer than any timeout, rarely as long as a lease.
    fn delay(&mut self) -> u64 {
        let stormy = self.now < CALM;
        match self.rng.random_range(0..1_000) {
            0..30 if stormy => self.rng.random_range(0..35 * SECOND),
            30..100 if stormy => self.rng.random_range(0..2 * SECOND),
            _ => self.rng.random_range(0..5 * MS),
        }
    }

    fn after_up_to(&mut self, longest: u64, what: What) {
        let delay = self.rng.random_range(0..longest);
        self.after(delay, what);
    }

    fn after(&mut self, delay: u64, what: What) {
        self.at(self.now + delay, what);
    }

    fn at(&mut self, time: u64, what: What) {
        self.sequence += 1;
        self.queue.push(Reverse((time.max(self.now), self.sequence)));
        self.events.insert(self.sequence, what);
    }

    fn note(&mut self, line: String) {
        self.history.push(format!("{:.3} {line}", seconds(self.now)));
    }

    fn failed(&self, problem: &str) -> String {
        let shown = &self.history[self.history.len().saturating_sub(SHOWN)..];
        format!("{problem} at {:.3} s\n  {}", seconds(self.now), shown.join("\n  "))
    }
}

impl Node {
    fn local(&self, now: u64) -> Instant {
        Instant::since_boot(Duration::from_nanos(self.offset + run_fast(now, self.drift)))
    }

    /// The first true time at which the node's clock shows this.
    fn true_time(&self, at: Instant) -> u64 {
        let local = u64::try_from(at.since(Instant::default()).as_nanos()).expect("a short simulation");
        let speed = u64::try_from(1_000_000 + self.drift).expect("a clock that runs forward");
        let passed = u128::from(local.saturating_sub(self.offset)) * 1_000_000;
        u64::try_from(passed.div_ceil(u128::from(speed))).expect("a short simulation") + 1
    }
}

/// What a clock that is fast by `drift` millionths shows.
pub(super) fn run_fast(now: u64, drift: i64) -> u64 {
    let speed = u64::try_from(1_000_000 + drift).expect("a clock that runs forward");
    u64::try_from(u128::from(now) * u128::from(speed) / 1_000_000).expect("a short simulation")
}

fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}
