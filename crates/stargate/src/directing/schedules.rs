//! Directives that run by themselves.

use stargate_queue::schedule::Schedule;

use super::{Catalogue, KIND, Payload};
use crate::failure::Result;

/// Before the directive's name: schedules of directives belong to their files.
pub(crate) const PREFIX: &str = "directive:";

/// The schedules that the directives ask for. One that cannot be read is passed over with a warning: the others are not
/// to wait for it.
pub(crate) fn planned(catalogue: &Catalogue) -> Result<Vec<Schedule>> {
    let mut schedules = Vec::new();
    for found in catalogue.all() {
        let directive = match found {
            Ok(directive) => directive,
            Err(trouble) => {
                tracing::warn!(
                    problem = trouble.message,
                    "a directive is passed over; see 'stargate directive check'"
                );
                continue;
            }
        };
        let Some(schedule) = &directive.schedule else { continue };
        let payload = Payload { directive: directive.name.clone(), scheduled: true };
        schedules.push(Schedule {
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
    Ok(schedules)
}
