//! Which fault comes when: a sequence that the seed alone decides.
//!
//! What a fault meets depends on the machine as well, so a replay runs the same faults in the same order with the same
//! pauses, and not the same instructions. Faults that are not wanted, or cannot be brought about on a machine, are drawn and passed
//! over: the others come in the same order everywhere. A catalogue that has changed gives other faults for the same seed.

use std::time::Duration;

use anyhow::{Result, bail};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::site::Kind;

/// Two things go wrong at once: something with our processes, and something with what they need. From time to time packets
/// are lost as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Our processes, and what they have started.
    Processes,
    /// Databases, locks, disks, ways to one of them, remotes.
    Surroundings,
    /// The network between us and all of them. A lane of its own, so that seeds bring the same faults about in the other two.
    Network,
}

impl Lane {
    /// How much longer than usual the pauses are: without a network nothing else can go wrong.
    const fn calm(self) -> u32 {
        match self {
            Self::Processes | Self::Surroundings => 1,
            Self::Network => 20,
        }
    }
}

/// One kind of fault.
#[derive(Debug)]
pub(crate) struct Spec {
    /// `target:what`.
    pub(crate) name: &'static str,
    /// What it is, for people.
    pub(crate) about: &'static str,
    lane: Lane,
    weight: u32,
    /// How long it lasts, in milliseconds.
    hold: (u64, u64),
    sites: &'static [Kind],
}

impl Spec {
    fn is_named(&self, word: &str) -> bool {
        self.name == word || self.name.split(':').next() == Some(word)
    }

    fn is_wanted(&self, kind: Kind, only: &[String]) -> bool {
        self.sites.contains(&kind) && (only.is_empty() || only.iter().any(|word| self.is_named(word)))
    }
}

/// Refuses words that name no fault.
pub(crate) fn check_names(only: &[String]) -> Result<()> {
    let unknown = only.iter().find(|word| !CATALOGUE.iter().any(|spec| spec.is_named(word)));
    let Some(word) = unknown else { return Ok(()) };
    let names: Vec<&str> = CATALOGUE.iter().map(|spec| spec.name).collect();
    bail!("there is no fault and no target {word}; there are {}", names.join(", "))
}

const ALL: &[Kind] = &[Kind::Sqlite, Kind::Postgres, Kind::Temporal];
const SERVERS: &[Kind] = &[Kind::Postgres, Kind::Temporal];
const TEMPORAL: &[Kind] = &[Kind::Temporal];
const SQLITE: &[Kind] = &[Kind::Sqlite];

/// Longer than the lease of two seconds, at the upper end.
const STOP: (u64, u64) = (100, 4500);
const SHORT: (u64, u64) = (50, 1500);
/// Long enough to be noticed by everybody: a process looks at its clock's offset once a second.
const STEP: (u64, u64) = (1500, 4500);

const fn spec(
    name: &'static str,
    about: &'static str,
    lane: Lane,
    weight: u32,
    hold: (u64, u64),
    sites: &'static [Kind],
) -> Spec {
    Spec { name, about, lane, weight, hold, sites }
}

use Lane::{Network, Processes, Surroundings};

/// All faults there are.
#[rustfmt::skip]
pub(crate) const CATALOGUE: &[Spec] = &[
    spec("worker:kill", "SIGKILL to a worker", Processes, 8, SHORT, ALL),
    spec("worker:stop", "SIGSTOP to a worker, up to twice its lease", Processes, 4, STOP, ALL),
    spec("worker:term", "SIGTERM to a worker", Processes, 2, SHORT, ALL),
    spec("node:kill", "SIGKILL to a node", Processes, 4, SHORT, ALL),
    spec("node:stop", "SIGSTOP to a node, beyond the life of its lock", Processes, 3, STOP, ALL),
    spec("node:term", "SIGTERM to a node", Processes, 2, SHORT, ALL),
    spec("hook:kill", "SIGKILL to a hook in mid-push", Processes, 6, (0, 0), ALL),
    spec("hook:stop", "SIGSTOP to a hook in mid-push", Processes, 2, SHORT, ALL),
    spec("git:kill", "SIGKILL to any git of ours: receiving, mirroring, comparing", Processes, 4, (0, 0), ALL),
    spec("handler:kill", "SIGKILL to a program that does a job's work", Processes, 4, (0, 0), ALL),
    spec("disk:full", "no room on the disk of the home", Surroundings, 4, SHORT, ALL),
    spec("remote:away", "the mirror's remote is gone", Surroundings, 3, SHORT, ALL),
    spec("source:broken", "the directive's source answers 500, half pages or nothing", Surroundings, 3, SHORT, ALL),
    spec("sqlite:locked", "another program holds the write lock of the database", Surroundings, 6, SHORT, SQLITE),
    spec("sqlite:pinned", "another program holds a read transaction open", Surroundings, 3, STOP, SQLITE),
    spec("postgres:crash", "the database dies without a checkpoint and is started again", Surroundings, 3, (0, 400), SERVERS),
    spec("postgres:restart", "the database is shut down in good order and started again", Surroundings, 2, (0, 400), SERVERS),
    spec("postgres:stop", "SIGSTOP to all processes of the database", Surroundings, 3, SHORT, SERVERS),
    spec("postgres:cut", "connections to the database end, new ones are refused", Surroundings, 4, SHORT, SERVERS),
    spec("postgres:stall", "the network to the database passes nothing on for a while", Surroundings, 3, SHORT, SERVERS),
    spec("postgres:loss", "what is sent to the database is lost, and nobody is told", Surroundings, 2, SHORT, SERVERS),
    spec("postgres:drop", "the database ends every session", Surroundings, 4, (0, 0), SERVERS),
    spec("postgres:full", "strangers take all connections of the database", Surroundings, 2, SHORT, SERVERS),
    spec("postgres:disk", "no room on the disk of the database", Surroundings, 2, SHORT, SERVERS),
    spec("clock:ahead", "the clock of our processes is an hour ahead", Surroundings, 5, STEP, SERVERS),
    spec("clock:back", "the clock of our processes is an hour back", Surroundings, 5, STEP, SERVERS),
    spec("redis:kill", "SIGKILL to Redis, started again with nothing", Surroundings, 3, (0, 600), SERVERS),
    spec("redis:stop", "SIGSTOP to Redis", Surroundings, 3, STOP, SERVERS),
    spec("redis:cut", "connections to Redis end, new ones are refused", Surroundings, 3, SHORT, SERVERS),
    spec("redis:stall", "the network to Redis passes nothing on for a while", Surroundings, 2, STOP, SERVERS),
    spec("redis:loss", "what is sent to Redis is lost, and nobody is told", Surroundings, 2, STOP, SERVERS),
    spec("s3:kill", "SIGKILL to the S3 server, started again", Surroundings, 1, (0, 300), SERVERS),
    spec("s3:stop", "SIGSTOP to the S3 server", Surroundings, 2, SHORT, SERVERS),
    spec("s3:cut", "connections to the S3 server end, new ones are refused", Surroundings, 3, SHORT, SERVERS),
    spec("s3:loss", "what is sent to the S3 server is lost, and nobody is told", Surroundings, 2, SHORT, SERVERS),
    spec("temporal:kill", "SIGKILL to Temporal, started again with what it knew", Surroundings, 2, (0, 300), TEMPORAL),
    spec("temporal:stop", "SIGSTOP to Temporal", Surroundings, 2, STOP, TEMPORAL),
    spec("temporal:cut", "connections to Temporal end, new ones are refused", Surroundings, 4, SHORT, TEMPORAL),
    spec("temporal:loss", "what is sent to Temporal is lost, and nobody is told", Surroundings, 2, SHORT, TEMPORAL),
    spec("network:lossy", "three of ten packets to and from all servers are lost", Network, 3, STOP, SERVERS),
    spec("network:gone", "all packets to and from all servers are lost", Network, 2, STOP, SERVERS),
];

/// One fault of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    /// Its name in the catalogue.
    pub(crate) name: &'static str,
    /// The time before it.
    pub(crate) pause: Duration,
    /// How long it lasts.
    pub(crate) hold: Duration,
    /// Decides which of several is hit.
    pub(crate) pick: u32,
}

/// The faults of a lane, without end.
#[derive(Debug)]
pub(crate) struct Plan {
    rng: StdRng,
    /// All of the lane on this site, and whether they are wanted and can be brought about.
    specs: Vec<(&'static Spec, bool)>,
}

impl Plan {
    /// What a site cannot be put to on this machine, although it is wanted.
    pub(crate) fn left_out(kind: Kind, only: &[String], can: impl Fn(&str) -> bool) -> Vec<&'static str> {
        let wanted = CATALOGUE.iter().filter(|spec| spec.is_wanted(kind, only));
        wanted.map(|spec| spec.name).filter(|name| !can(name)).collect()
    }

    /// Those of a lane on a site; `only` names faults, or targets (`postgres`), and empty means all. Faults that cannot be
    /// brought about here are left out.
    pub(crate) fn new(
        seed: u64,
        lane: Lane,
        kind: Kind,
        only: &[String],
        can: impl Fn(&str) -> bool,
    ) -> Self {
        let here = CATALOGUE.iter().filter(|spec| spec.lane == lane && spec.sites.contains(&kind));
        let specs = here.map(|spec| (spec, spec.is_wanted(kind, only) && can(spec.name))).collect();
        Self { rng: StdRng::seed_from_u64(seed ^ (lane as u64 + 1) << 32 ^ (kind as u64 + 1) << 40), specs }
    }

    /// The next one; none if nothing was wanted.
    pub(crate) fn next(&mut self) -> Option<Fault> {
        if !self.specs.iter().any(|(_, wanted)| *wanted) {
            return None;
        }
        loop {
            let (fault, wanted) = self.draw()?;
            if wanted {
                return Some(fault);
            }
        }
    }

    /// A fault of the lane, and whether it is wanted.
    fn draw(&mut self) -> Option<(Fault, bool)> {
        let total: u32 = self.specs.iter().map(|(spec, _)| spec.weight).sum();
        let mut at = self.rng.random_range(0..total);
        let (spec, wanted) = self.specs.iter().find(|(spec, _)| {
            let here = at < spec.weight;
            at = at.saturating_sub(spec.weight);
            here
        })?;
        let (least, most) = spec.hold;
        let fault = Fault {
            name: spec.name,
            pause: Duration::from_millis(self.rng.random_range(20..400)) * spec.lane.calm(),
            hold: Duration::from_millis(self.rng.random_range(least..=most)),
            pick: self.rng.random(),
        };
        Some((fault, *wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(seed: u64, only: &[&str]) -> Vec<String> {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        let mut plan = Plan::new(seed, Lane::Surroundings, Kind::Postgres, &only, |_| true);
        (0..50).filter_map(|_| plan.next()).map(|fault| format!("{fault:?}")).collect()
    }

    #[test]
    fn the_seed_alone_decides() {
        assert_eq!(names(7, &[]), names(7, &[]));
        assert_ne!(names(7, &[]), names(8, &[]));
        assert!(names(7, &["redis"]).iter().all(|fault| fault.contains("redis:")));
        assert_eq!(names(7, &["nothing"]).len(), 0);
    }

    #[test]
    fn what_is_passed_over_does_not_change_the_others() {
        let mut all = names(7, &[]);
        all.retain(|fault| fault.contains("redis:"));
        assert!(all.len() > 3, "{all:?}");
        assert_eq!(all[..], names(7, &["redis"])[..all.len()]);
    }

    #[test]
    fn a_word_that_names_no_fault_is_refused() {
        let checked = |word: &str| check_names(&[word.to_owned()]);
        checked("redis").unwrap();
        checked("redis:kill").unwrap();
        let refused = checked("redis:kil").unwrap_err().to_string();
        assert!(refused.contains("redis:kil") && refused.contains("worker:kill"), "{refused}");
    }

    #[test]
    fn what_cannot_be_brought_about_here_is_told() {
        let no_disk = |name: &str| !name.starts_with("disk");
        assert_eq!(Plan::left_out(Kind::Sqlite, &[], no_disk), ["disk:full"]);
        assert_eq!(Plan::left_out(Kind::Sqlite, &["worker".to_owned()], no_disk), [""; 0]);
    }

    #[test]
    fn every_site_has_faults_of_both_lanes_and_names_are_unique() {
        for kind in [Kind::Sqlite, Kind::Postgres, Kind::Temporal] {
            for lane in [Processes, Surroundings] {
                assert!(
                    Plan::new(1, lane, kind, &[], |name| !name.contains("disk")).next().is_some(),
                    "{kind:?} {lane:?}"
                );
            }
        }
        let mut names: Vec<&str> = CATALOGUE.iter().map(|spec| spec.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CATALOGUE.len());
    }
}
