//! Our own processes: two nodes and two workers, started again whenever one has ended, as a supervisor would.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stargate_testkit::process::{Program, Running};

/// How long a process may take to end. It has a second for its handlers, and what it records may have to wait for a fault to pass.
const ENDING: Duration = Duration::from_secs(20);

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// `stargate up`.
    Node,
    /// `stargate worker`.
    Worker,
}

impl Part {
    /// What its log says when it has begun its work.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Node => "listening on http",
            Self::Worker => "worker started",
        }
    }
}

#[derive(Debug)]
struct Role {
    part: Part,
    name: &'static str,
    /// How often it was started; part of its instance name, so that a name never leads twice.
    generation: u32,
    running: Option<Running>,
    frozen: bool,
    /// Not started before.
    due: Instant,
    /// Whether a fault is why it ends.
    expected: bool,
    /// When it was asked to end, or could hear that.
    asked: Option<Instant>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Crew {
    roles: Vec<Role>,
    paused: bool,
    /// What ended without a fault of its own.
    pub(crate) ended_by_itself: Vec<Ended>,
    /// Who did not end when asked to, and had to be killed.
    pub(crate) deaf: Vec<String>,
    /// Every log there is, also of processes that are gone.
    pub(crate) logs: Vec<PathBuf>,
}

/// A process that ended without a fault of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Its name and the end of its log.
    pub(crate) what: String,
    /// Whether it had come so far that it did its work.
    pub(crate) had_begun: bool,
}

impl Ended {
    fn of(part: Part, name: &str, log: &str) -> Self {
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(4)..].join(" | ");
        Self { what: format!("{name}: {end}"), had_begun: log.contains(part.sign()) }
    }
}

/// A node as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its instance name.
    pub(crate) instance: String,
    /// Where it listens.
    pub(crate) address: String,
}

impl Crew {
    /// Nobody has started yet; [`Crew::tend`] does it.
    pub(crate) fn new() -> Self {
        let role = |part, name| Role {
            part,
            name,
            generation: 0,
            running: None,
            frozen: false,
            due: Instant::now(),
            expected: true,
            asked: None,
        };
        let roles = vec![
            role(Part::Node, "a"),
            role(Part::Node, "b"),
            role(Part::Worker, "w"),
            role(Part::Worker, "x"),
        ];
        Self { roles, paused: false, ended_by_itself: Vec::new(), deaf: Vec::new(), logs: Vec::new() }
    }

    /// Starts whoever is missing and due.
    pub(crate) fn tend(&mut self, program: &Program) {
        for role in &mut self.roles {
            if let Some(running) = &mut role.running {
                if running.is_running() {
                    if !role.frozen && role.asked.is_some_and(|asked| asked.elapsed() > ENDING) {
                        self.deaf.push(format!("{}{}", role.name, role.generation));
                        running.kill();
                    }
                    continue;
                }
                if !role.expected {
                    let name = format!("{}{}", role.name, role.generation);
                    self.ended_by_itself.push(Ended::of(role.part, &name, &running.log()));
                    role.due = Instant::now() + Duration::from_millis(300);
                }
                role.running = None;
                role.frozen = false;
            }
            if !self.paused && Instant::now() >= role.due {
                role.generation += 1;
                role.expected = false;
                role.asked = None;
                let instance = format!("{}{}", role.name, role.generation);
                let arguments: &[&str] = if role.part == Part::Node { &["up"] } else { &["worker"] };
                let running = program.start_with(arguments, &[("STARGATE_INSTANCE", &instance)]);
                self.logs.push(running.log_path().to_owned());
                role.running = Some(running);
            }
        }
    }

    /// The nodes that are there, whether they answer or not.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        let nodes = self.roles.iter().filter(|role| role.part == Part::Node);
        nodes
            .filter_map(|role| {
                let address = role.running.as_ref()?.address().to_owned();
                Some(Node { instance: format!("{}{}", role.name, role.generation), address })
            })
            .collect()
    }

    /// The ids of all processes.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.roles.iter().filter_map(|role| Some(role.running.as_ref()?.id())).collect()
    }

    /// SIGKILL to one; started again after a while. Whether there was one.
    pub(crate) fn kill(&mut self, part: Part, pick: u32, down: Duration) -> bool {
        let Some(role) = self.one(part, pick) else { return false };
        role.expected = true;
        role.frozen = false;
        role.due = Instant::now() + down;
        if let Some(running) = &mut role.running {
            running.kill();
        }
        true
    }

    /// SIGTERM to one.
    pub(crate) fn terminate(&mut self, part: Part, pick: u32, down: Duration) -> bool {
        let Some(role) = self.one(part, pick) else { return false };
        role.expected = true;
        role.due = Instant::now() + down;
        role.asked = role.asked.or_else(|| Some(Instant::now()));
        if let Some(running) = &role.running {
            running.signal(Signal::TERM);
        }
        true
    }

    /// SIGSTOP to one that moves; its process id.
    pub(crate) fn freeze(&mut self, part: Part, pick: u32) -> Option<u32> {
        let role = self.one(part, pick).filter(|role| !role.frozen)?;
        role.frozen = true;
        let running = role.running.as_ref()?;
        running.freeze();
        Some(running.id())
    }

    /// SIGCONT to the one with this process id, if it is still there.
    pub(crate) fn thaw(&mut self, id: u32) {
        for role in &mut self.roles {
            if let Some(running) = role.running.as_mut().filter(|running| running.id() == id)
                && running.is_running()
            {
                running.thaw();
                role.frozen = false;
                role.asked = role.asked.map(|_| Instant::now());
            }
        }
    }

    /// Ends all with SIGTERM, those that do not hear it with SIGKILL; nobody is started any more.
    pub(crate) async fn stop(&mut self) {
        self.paused = true;
        for role in &mut self.roles {
            if let Some(running) = &mut role.running
                && running.is_running()
            {
                running.thaw();
                running.terminate();
            }
        }
        let begin = Instant::now();
        for role in &mut self.roles {
            let Some(running) = &mut role.running else { continue };
            while running.is_running() && begin.elapsed() < ENDING {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            if running.is_running() {
                self.deaf.push(format!("{}{}", role.name, role.generation));
                running.kill();
            }
            role.running = None;
        }
    }

    fn one(&mut self, part: Part, pick: u32) -> Option<&mut Role> {
        let mut there: Vec<&mut Role> = Vec::new();
        for role in &mut self.roles {
            let runs = role.running.as_mut().is_some_and(Running::is_running);
            if role.part == part && runs {
                there.push(role);
            }
        }
        let count = there.len();
        (count > 0).then(|| there.swap_remove(pick as usize % count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_before_it_has_begun_is_told_apart() {
        let log = "a\nb\nc\nworker started\nd\ne";
        let ended = Ended::of(Part::Worker, "w1", log);
        assert_eq!((ended.what.as_str(), ended.had_begun), ("w1: c | worker started | d | e", true));
        assert!(!Ended::of(Part::Node, "a1", log).had_begun);
    }
}
