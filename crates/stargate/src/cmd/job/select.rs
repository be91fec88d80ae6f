//! Which jobs: by what they are instead of by id.

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use stargate_queue::State;
use stargate_queue::store::{JobFilter, Store};

use crate::config::interval;
use crate::failure::{Exit, Failure, Result};

/// Which jobs. Each narrows them down.
#[derive(Debug, Args, Default, Clone)]
#[command(next_help_heading = "Which jobs")]
pub(crate) struct Selection {
    /// Only these states: queued, processing, done, failed, cancelled
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub(super) state: Vec<State>,
    /// Only this kind
    #[arg(long)]
    pub(super) kind: Option<String>,
    /// Only this queue
    #[arg(long)]
    pub(super) queue: Option<String>,
    /// Only jobs created since: 1h, 30m, or an instant
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only jobs created before: 1h (ago), or an instant
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only jobs with this limit key
    #[arg(long, value_name = "KEY")]
    limit_key: Option<String>,
    /// Only jobs whose last error has this code
    #[arg(long)]
    pub(super) code: Option<String>,
    /// Only jobs with this text in payload, unique key or error message
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
}

impl Selection {
    /// Failed jobs of one kind with one code.
    pub(crate) fn of_failure(kind: &str, code: &str) -> Self {
        Self {
            state: vec![State::Failed],
            kind: Some(kind.to_owned()),
            code: Some(code.to_owned()),
            ..Self::default()
        }
    }

    /// Whether only some jobs are asked for.
    pub(super) fn narrows(&self) -> bool {
        let texts =
            [&self.kind, &self.queue, &self.since, &self.until, &self.limit_key, &self.code, &self.search];
        !self.state.is_empty() || texts.into_iter().any(Option::is_some)
    }

    /// What the store is asked for. Lengths of time are reckoned from its clock, once.
    pub(crate) async fn filter(&self, store: &dyn Store) -> Result<JobFilter> {
        let mut filter = JobFilter {
            states: self.state.clone(),
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            limit_key: self.limit_key.clone(),
            code: self.code.clone(),
            search: self.search.clone(),
            ..JobFilter::default()
        };
        if self.since.is_some() || self.until.is_some() {
            let now = store.now().await?;
            let at = |name: &str, text: &Option<String>| {
                text.as_deref().map(|text| instant(name, text, now)).transpose()
            };
            filter.since = at("--since", &self.since)?;
            filter.until = at("--until", &self.until)?;
        }
        filter.check()?;
        Ok(filter)
    }
}

fn instant(name: &str, text: &str, now: Timestamp) -> Result<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let ago = interval::parse(text).ok().and_then(|length| SignedDuration::try_from(length).ok());
    ago.and_then(|ago| now.checked_sub(ago).ok()).ok_or_else(|| {
        let problem = "is neither a length of time (1h) nor an instant (2026-01-31T12:00:00Z)";
        Failure::new(Exit::Usage, "USAGE", format!("{name} {text:?} {problem}"))
    })
}
