//! The list of jobs: filters in the address, rows that can be chosen, and a form to enqueue one.

use askama::Template;
use axum::http::{Method, StatusCode};
use serde_json::value::RawValue;

use super::call::Failed;
use super::fields::{Fields, Sent};
use super::frame::{Ends, Frame, Shown, Visit, ask, see_other};
use super::html::{self, Html, encode, query, word};
use crate::api::types::{Enqueued, Job, JobPage, Kinds, Queues};

/// Jobs of a page.
const PAGE: &str = "50";
/// All states, in the order of a job's life.
const STATES: [&str; 5] = ["queued", "processing", "failed", "done", "cancelled"];
/// Since when.
const AGES: [(&str, &str); 6] = [
    ("", "any time"),
    ("15m", "last 15 minutes"),
    ("1h", "last hour"),
    ("24h", "last 24 hours"),
    ("7d", "last 7 days"),
    ("30d", "last 30 days"),
];

/// Which jobs, as in the address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) states: Vec<String>,
    pub(crate) kind: String,
    pub(crate) queue: String,
    pub(crate) since: String,
    pub(crate) until: String,
    pub(crate) code: String,
    pub(crate) limit_key: String,
    pub(crate) q: String,
}

impl Filter {
    /// Reads the address. A state that there is not is left to the API, which says so.
    pub(crate) fn of(fields: &Fields) -> Self {
        let states = fields.all("state").flat_map(|states| states.split(','));
        Self {
            states: states.map(|state| state.trim().to_owned()).filter(|state| !state.is_empty()).collect(),
            kind: fields.text("kind").to_owned(),
            queue: fields.text("queue").to_owned(),
            since: fields.text("since").to_owned(),
            until: fields.text("until").to_owned(),
            code: fields.text("code").to_owned(),
            limit_key: fields.text("limit_key").to_owned(),
            q: fields.text("q").to_owned(),
        }
    }

    /// As pairs, for addresses and forms.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("state", self.states.join(",")),
            ("kind", self.kind.clone()),
            ("queue", self.queue.clone()),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
            ("code", self.code.clone()),
            ("limit_key", self.limit_key.clone()),
            ("q", self.q.clone()),
        ];
        all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// As a query, with more pairs.
    pub(crate) fn query(&self, more: &[(&'static str, &str)]) -> String {
        let pairs = self.pairs();
        let own = pairs.iter().map(|(name, value)| (*name, value.as_str()));
        query(own.chain(more.iter().copied()))
    }

    /// As options of the command line.
    pub(crate) fn options(&self) -> String {
        let option = |(name, value): (&'static str, String)| {
            let name = match name {
                "q" => "search",
                "limit_key" => "limit-key",
                name => name,
            };
            format!(" --{name} {}", word(&value))
        };
        self.pairs().into_iter().map(option).collect()
    }

    /// Whether it has a state.
    pub(crate) fn has(&self, state: &str) -> bool {
        self.states.iter().any(|found| found == state)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A job as a row.
pub(crate) struct Row {
    pub(crate) job: Job,
    pub(crate) time: Html,
    pub(crate) note: String,
}

impl Row {
    pub(crate) fn of(job: Job) -> Self {
        let time = match (job.finished_at, job.started_at) {
            (Some(finished), _) => html::ago(&finished),
            (None, Some(started)) if job.state == "processing" => html::ago(&started),
            _ => html::ago(&job.run_at),
        };
        let note = match (&job.finished_at, &job.started_at) {
            (Some(finished), Some(started)) => format!("took {}", html::between(started, finished)),
            (None, Some(_)) if job.state == "processing" => "running".to_owned(),
            _ if job.state == "queued" && job.attempt_count > 0 => "waits to retry".to_owned(),
            _ if job.state == "queued" => "due".to_owned(),
            _ => String::new(),
        };
        Self { job, time, note }
    }
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct Jobs {
    frame: Frame,
    filter: Filter,
    states: [&'static str; 5],
    ages: [(&'static str, &'static str); 6],
    rows: Vec<Row>,
    next: Option<String>,
    is_first: bool,
    scanned_all: bool,
    kinds: Vec<String>,
    queues: Vec<String>,
    twin: String,
    retry_all: Option<String>,
    cancel_all: Option<String>,
}

/// `GET /jobs`
pub(crate) async fn list(visit: Visit, fields: Fields) -> Shown {
    let filter = Filter::of(&fields);
    if let Some(found) = by_number(&visit, &filter).await {
        return Err(Ends::Answer(Box::new(see_other(&visit.site, &found))));
    }
    let before = fields.text("before");
    let path = format!("/jobs{}", filter.query(&[("before", before), ("limit", PAGE)]));
    let (page, kinds, queues) = futures::join!(
        visit.api.get::<JobPage>(&path),
        visit.api.get::<Kinds>("/kinds"),
        visit.api.get::<Queues>("/queues")
    );
    let page = ask!(visit, page);
    let next = page.next_before.map(|id| format!("/jobs{}", filter.query(&[("before", &id.to_string())])));
    // Offered only where it can do something: whoever wants to end all done jobs has mistaken the button.
    let retryable = filter.states.is_empty() || filter.has("failed");
    let cancellable = filter.states.is_empty() || filter.has("queued") || filter.has("processing");
    let bulk =
        |action: &'static str| format!("/jobs/bulk{}", filter.query(&[("action", action), ("all", "1")]));
    let listed = Jobs {
        frame: visit.frame("Jobs", "/jobs"),
        states: STATES,
        ages: AGES,
        next,
        is_first: before.is_empty(),
        scanned_all: page.scanned_all,
        rows: page.jobs.into_iter().map(Row::of).collect(),
        kinds: kinds.map(|kinds| kinds.kinds.into_iter().map(|kind| kind.kind).collect()).unwrap_or_default(),
        queues: queues
            .map(|queues| queues.queues.into_iter().map(|queue| queue.queue).collect())
            .unwrap_or_default(),
        twin: format!("stargate job list{}", filter.options()),
        retry_all: retryable.then(|| bulk("retry")),
        cancel_all: cancellable.then(|| bulk("cancel")),
        filter,
    };
    visit.show(&listed)
}

/// The page of a job, if nothing but its number was typed.
async fn by_number(visit: &Visit, filter: &Filter) -> Option<String> {
    let id: i64 = filter.q.trim_start_matches('#').parse().ok()?;
    let alone = Filter { q: String::new(), ..filter.clone() }.is_empty();
    let path = format!("/jobs/{id}");
    (alone && visit.api.bytes(&path).await.is_ok()).then_some(path)
}

#[derive(Template)]
#[template(path = "new_job.html")]
struct NewJob {
    frame: Frame,
    kinds: Vec<String>,
    queues: Vec<String>,
    kind: String,
    queue: String,
    payload: String,
    problem: Option<Failed>,
}

/// `GET /jobs/new`
pub(crate) async fn new(visit: Visit, fields: Fields) -> Shown {
    form(&visit, &fields, None).await
}

async fn form(visit: &Visit, fields: &Fields, problem: Option<Failed>) -> Shown {
    let (kinds, queues) =
        futures::join!(visit.api.get::<Kinds>("/kinds"), visit.api.get::<Queues>("/queues"));
    let status = problem.as_ref().map_or(StatusCode::OK, |problem| problem.status);
    let page = NewJob {
        frame: visit.frame("Enqueue a job", "/jobs"),
        kinds: kinds.map(|kinds| kinds.kinds.into_iter().map(|kind| kind.kind).collect()).unwrap_or_default(),
        queues: queues
            .map(|queues| queues.queues.into_iter().map(|queue| queue.queue).collect())
            .unwrap_or_default(),
        kind: fields.text("kind").to_owned(),
        queue: fields.text("queue").to_owned(),
        payload: fields.get("payload").unwrap_or("{}").to_owned(),
        problem,
    };
    Ok(visit.show_as(status, &page))
}

/// What the API takes; our own type reads, and does not write.
#[derive(serde::Serialize)]
struct Body<'a> {
    kind: &'a str,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i16>,
}

/// `POST /jobs/new`
pub(crate) async fn enqueue(visit: Visit, Sent(fields): Sent) -> Shown {
    match try_enqueue(&visit, &fields).await {
        Ok(enqueued) => {
            visit.done(&format!("/jobs/{}", enqueued.id), format!("Job {} is enqueued.", enqueued.id))
        }
        Err(failed) => form(&visit, &fields, Some(failed)).await,
    }
}

async fn try_enqueue(visit: &Visit, fields: &Fields) -> Result<Enqueued, Failed> {
    let payload: &RawValue = serde_json::from_str(fields.get("payload").unwrap_or("null"))
        .map_err(|error| Failed::invalid(format!("the payload is not JSON: {error}")))?;
    let body = Body {
        kind: fields.text("kind"),
        payload,
        queue: fields.get("queue"),
        delay: fields.get("delay"),
        priority: fields.number("priority")?,
    };
    visit.api.change(Method::POST, "/jobs", &body).await
}

/// Where a list of jobs with this filter is.
pub(crate) fn failed_of(kind: &str, code: &str) -> String {
    format!("/jobs?state=failed&kind={}&code={}", encode(kind), encode(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn a_filter_is_the_same_in_the_address_and_on_the_command_line() {
        let given = fields(&[
            ("state", "failed"),
            ("state", "queued"),
            ("kind", "a b"),
            ("q", "it's"),
            ("since", ""),
        ]);
        let filter = Filter::of(&given);
        assert_eq!(filter.query(&[("before", "7")]), "?state=failed%2Cqueued&kind=a%20b&q=it%27s&before=7");
        assert_eq!(filter.options(), r" --state failed,queued --kind 'a b' --search 'it'\''s'");
        assert!(Filter::of(&fields(&[])).is_empty() && filter.has("failed"));
    }
}
