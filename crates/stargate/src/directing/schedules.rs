//! Directives that run by themselves.

use stargate_queue::schedule::Schedule;

use super::{Catalogue, KIND, Payload};
use crate::failure::Result;

/// Before the directive's name: schedules of directives belong to their files.
const PREFIX: &str = "directive:";

/// What the files of directives ask for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schedules {
    /// To be entered.
    pub(crate) wanted: Vec<Schedule>,
    /// Names that stay as they are, because their files cannot be read now; `None` if no file could be looked at.
    kept: Option<Vec<String>>,
}

impl Schedules {
    /// What the files say. One that cannot be read is passed over with a warning: the others are not to wait for it.
    pub(crate) fn planned(catalogue: &Catalogue) -> Result<Self> {
        let all = match catalogue.all() {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(%error, "directives cannot be read, so their schedules stay as they are");
                return Ok(Self::default());
            }
        };
        let (mut wanted, mut kept) = (Vec::new(), Vec::new());
        for (name, found) in all {
            match found {
                Ok(directive) => {
                    let Some(schedule) = &directive.schedule else { continue };
                    let payload = Payload { directive: directive.name.clone(), scheduled: true };
                    wanted.push(Schedule {
                        name: format!("{PREFIX}{}", directive.name),
                        cron: schedule.cron.clone(),
                        time_zone: schedule.time_zone.clone(),
                        kind: KIND.to_owned(),
                        queue: directive.queue.clone(),
                        payload: crate::payload::of(&payload)?,
                        priority: 0,
                        next_at: None,
                        last_at: None,
                    });
                }
                Err(trouble) => {
                    let problem = trouble.message;
                    tracing::warn!(problem, "a directive is passed over; see 'stargate directive check'");
                    kept.push(format!("{PREFIX}{name}"));
                }
            }
        }
        Ok(Self { wanted, kept: Some(kept) })
    }

    /// None: they are another engine's.
    pub(crate) fn elsewhere() -> Self {
        Self { wanted: Vec::new(), kept: Some(Vec::new()) }
    }

    /// Whether a schedule belongs to a directive that does not ask for it any more.
    pub(crate) fn is_stale(&self, schedule: &Schedule) -> bool {
        let Some(kept) = &self.kept else { return false };
        schedule.kind == KIND
            && schedule.name.starts_with(PREFIX)
            && !kept.contains(&schedule.name)
            && self.wanted.iter().all(|wanted| wanted.name != schedule.name)
    }
}
