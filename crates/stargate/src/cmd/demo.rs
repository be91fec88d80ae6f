//! `stargate demo`: everything in a fresh temporary home, filled with one example of each kind of work.

mod check;
mod endpoint;
mod ingest;
mod push;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use stargate_base::Tasks;
use stargate_jobs::clip;
use stargate_queue::store::{JobFilter, Store};
use stargate_queue::{Due, Job, JobId, NewJob, State};
use tokio_util::sync::CancellationToken;

use crate::assemble;
use crate::cli::Global;
use crate::config::layer::Environment;
use crate::config::{self, Flags, Settings};
use crate::failure::{Failure, Result};
use crate::follow::{self, Audience};
use crate::output::{self, Output};
use crate::service::{Role, Service};
use crate::signals;

/// Longer, and the demo counts as broken.
const DEADLINE: Duration = Duration::from_secs(60);

const FILES: [(&str, &str); 7] = [
    ("stargate.toml", include_str!("../../demo/stargate.toml")),
    ("thumbnail.sh", include_str!("../../demo/thumbnail.sh")),
    ("flaky.sh", include_str!("../../demo/flaky.sh")),
    ("poison.sh", include_str!("../../demo/poison.sh")),
    ("echo.sh", include_str!("../../demo/echo.sh")),
    ("record.sh", include_str!("../../demo/record.sh")),
    ("push.sh", include_str!("../../demo/push.sh")),
];

/// `demo`
#[derive(Debug, Args)]
#[command(
    after_help = "Needs nothing but this program. With git installed it takes a push and mirrors it, with ffmpeg it cuts a clip.\n\
        The home is removed at the end."
)]
pub(crate) struct Demo {
    /// Run to the end, check the outcomes, exit 0 or 1
    #[arg(long)]
    once: bool,
}

/// The jobs of the demo, by what they show.
#[derive(Debug)]
pub(crate) struct Cast {
    pub(crate) thumbnail: JobId,
    pub(crate) notify: JobId,
    pub(crate) delayed: JobId,
    pub(crate) chain: [JobId; 2],
    pub(crate) flaky: JobId,
    pub(crate) poison: JobId,
    pub(crate) tenants: Vec<JobId>,
    /// The job that makes a video, and the one that cuts it; without ffmpeg there are none.
    pub(crate) clip: Option<[JobId; 2]>,
    /// The run of the directive.
    pub(crate) ingest: JobId,
    /// The job that pushes to the repository; without git there is none.
    pub(crate) push: Option<JobId>,
}

impl Cast {
    fn all(&self) -> Vec<JobId> {
        let mut all = vec![
            self.thumbnail,
            self.notify,
            self.delayed,
            self.chain[0],
            self.chain[1],
            self.flaky,
            self.poison,
            self.ingest,
        ];
        all.extend(&self.tenants);
        all.extend(self.clip.iter().flatten());
        all.extend(self.push);
        all
    }
}

/// Where the demo plays.
struct Stage<'a> {
    service: &'a Service,
    settings: &'a Settings,
    home: &'a Path,
    endpoint: &'a endpoint::Endpoint,
    /// Why there is no repository, if there is none.
    without_git: Option<String>,
}

impl Demo {
    /// Runs the demo.
    pub(crate) async fn run(&self, global: &Global, out: Output) -> Result<()> {
        let cannot = |error| Failure::io("cannot make a temporary home", &error);
        let home = tempfile::Builder::new().prefix("stargate-demo-").tempdir().map_err(cannot)?;
        let tasks = Tasks::new();
        let stop = signals::stop_token(&tasks)?;
        let endpoint = endpoint::start(&tasks).await?;
        let settings = Arc::new(prepare(home.path(), endpoint.address)?);
        ingest::prepare(home.path(), &tasks).await?;
        if global.verbose > 0 {
            crate::log::install(&settings, global.verbose - 1, false)?;
        }
        let without_git = push::lacks(&settings).await;
        if without_git.is_none() {
            push::prepare(&settings, home.path()).await?;
        }
        let service = Service::start(&settings, Role::Everything, stop.clone()).await?;
        let stage = Stage {
            service: &service,
            settings: &settings,
            home: home.path(),
            endpoint: &endpoint,
            without_git,
        };
        let played = self.play(stage, out, &stop).await;
        let stay = played.is_ok() && !self.once && !stop.is_cancelled();
        if stay {
            stop.cancelled().await;
        }
        stop.cancel();
        let ended = service.ended().await;
        tasks.join().await;
        played.and(ended)
    }

    async fn play(&self, stage: Stage<'_>, out: Output, stop: &CancellationToken) -> Result<()> {
        let Stage { service, settings, home, endpoint, without_git } = stage;
        let store = service.store.as_ref();
        out.note(format!(
            "{} in {}, http://{}\n",
            output::bold("stargate demo"),
            home.display(),
            service.address
        ));
        let mut cast = enqueue(store, settings).await?;
        if has_ffmpeg(settings) {
            cast.clip = Some(enqueue_clip(store, home).await?);
        } else {
            out.note(
                "ffmpeg is not installed, so no clip is cut; on Debian and Ubuntu: apt-get install ffmpeg\n",
            );
        }
        match without_git {
            None => cast.push = Some(push::enqueue(store, service.address).await?),
            Some(why) => out.note(format!("{why}; on Debian and Ubuntu: apt-get install git\n")),
        }
        let audience = if out.json { Audience::Nobody } else { Audience::Lines };
        let all = cast.all();
        let following = follow::follow(store, &all, Some(DEADLINE), audience, out);
        let Some(jobs) = stop.run_until_cancelled(following).await else { return Ok(()) };
        let jobs = jobs?;
        let ticks = ticks(store).await?;
        let mut outcomes = check::outcomes(store, &cast, &jobs, &ticks, endpoint.calls()).await?;
        outcomes.push(ingest::outcome(settings, cast.ingest).await?);
        if let Some(jobs) = cast.clip {
            outcomes.push(check::clip(store, settings, jobs).await?);
        }
        if let Some(pushing) = jobs.iter().find(|job| Some(job.id) == cast.push) {
            outcomes.extend(push::outcomes(store, settings, pushing).await?);
        }
        check::print(&outcomes, out);
        let broken = outcomes.iter().filter(|outcome| !outcome.ok).count();
        if broken > 0 {
            let message = format!("{broken} of {} outcomes are not as they should be", outcomes.len());
            return Err(Failure::failed("INTERNAL", message).help("run 'stargate doctor', and report this"));
        }
        if !self.once {
            print_what_to_look_at(service, home, &cast, out);
        }
        Ok(())
    }
}

/// Writes the demo's files and reads them as any other configuration. The user's environment has no say.
fn prepare(home: &Path, endpoint: std::net::SocketAddr) -> Result<Settings> {
    let mirror = push::mirror_url(home)?;
    for (name, text) in FILES {
        let text = text.replace("ENDPOINT", &endpoint.to_string()).replace("@mirror@", &mirror);
        std::fs::write(home.join(name), text)
            .map_err(|error| Failure::io(format!("cannot write {name}"), &error))?;
    }
    let flags = Flags {
        config: Some(home.join("stargate.toml")),
        home: Some(home.to_owned()),
        listen: Some(std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0))),
        ..Flags::default()
    };
    config::load(flags, &Environment::default())
}

async fn enqueue(store: &dyn Store, settings: &Settings) -> Result<Cast> {
    let json = |value: serde_json::Value| move |kind: &str| NewJob::of(kind, &value);
    let image = json(serde_json::json!({ "image": "cat.png", "size": 200 }));
    let message = json(serde_json::json!({ "to": "ann", "text": "the thumbnail is ready" }));
    let one = |job: NewJob| one(store, job);
    let thumbnail = one(image("thumbnail")?).await?;
    let notify = one(message("notify")?).await?;
    let due = Due::In(Duration::from_secs(2));
    let delayed =
        one(NewJob { due, ..NewJob::of("echo", &serde_json::json!({ "was": "delayed" }))? }).await?;
    let parent = one(image("thumbnail")?).await?;
    let child = one(NewJob { after: vec![parent], ..message("notify")? }).await?;
    let flaky = one(NewJob::of("flaky", &serde_json::json!({}))?).await?;
    let poison = one(NewJob::of("poison", &serde_json::json!({ "image": "broken.png" }))?).await?;
    let tenants = (0..8).map(|n| {
        let tenant = if n % 2 == 0 { "tenant:red" } else { "tenant:blue" };
        let job = NewJob::of("echo", &serde_json::json!({ "tenant": tenant }))?;
        Ok(NewJob { queue: "tenants".to_owned(), limit_key: Some(tenant.to_owned()), ..job })
    });
    let tenants = store.enqueue(tenants.collect::<Result<_>>()?).await?;
    let tenants = tenants.into_iter().map(|answer| answer.id).collect();
    Ok(Cast {
        thumbnail,
        notify,
        delayed,
        chain: [parent, child],
        flaky,
        poison,
        tenants,
        ingest: ingest::enqueue(store, settings).await?,
        clip: None,
        push: None,
    })
}

fn has_ffmpeg(settings: &Settings) -> bool {
    assemble::clip_lacks(settings).is_none()
}

/// One job makes the video, the next one cuts it.
async fn enqueue_clip(store: &dyn Store, home: &Path) -> Result<[JobId; 2]> {
    let record = one(store, NewJob::of("record", &serde_json::json!({}))?).await?;
    let cut = serde_json::json!({ "source": home.join("recording.mp4"), "start": 2.5, "end": "00:00:06" });
    let clip = one(store, NewJob { after: vec![record], ..NewJob::of(clip::KIND, &cut)? }).await?;
    Ok([record, clip])
}

async fn one(store: &dyn Store, job: NewJob) -> Result<JobId> {
    let answers = store.enqueue(vec![job]).await?;
    answers.first().map(|answer| answer.id).ok_or_else(|| Failure::input("the store did not answer a job"))
}

/// The jobs of the schedule that are done; waits for the first.
async fn ticks(store: &dyn Store) -> Result<Vec<Job>> {
    let begun = std::time::Instant::now();
    loop {
        let filter =
            JobFilter { queue: Some("ticks".to_owned()), states: vec![State::Done], ..JobFilter::default() };
        let ticks = store.jobs(filter).await?;
        if !ticks.is_empty() || begun.elapsed() > Duration::from_secs(15) {
            return Ok(ticks);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// This program, as it can be started from any directory.
fn this_program() -> String {
    let called = std::env::args().next().unwrap_or_else(|| "stargate".to_owned());
    match called.contains('/').then(|| std::path::absolute(&called)) {
        Some(Ok(path)) => path.display().to_string(),
        _ => called,
    }
}

fn print_what_to_look_at(service: &Service, home: &Path, cast: &Cast, out: Output) {
    let stargate = this_program();
    let http = format!("curl http://{}", service.address);
    let mut rows = vec![
        (format!("{stargate} job list"), "every job"),
        (format!("{stargate} job show {}", cast.poison), "the dead letter, with what its program said"),
        (format!("{stargate} job retry {}", cast.poison), "run it again"),
        (format!("{stargate} job events {}", cast.flaky), "two failures and a success"),
        (format!("{stargate} job enqueue thumbnail --wait"), "watch one live"),
        (format!("{stargate} queue list"), "what waits where"),
        (format!("{stargate} schedule list"), "the schedule, in words"),
        (format!("{stargate} directive show sample"), "the directive, its cursor and its run"),
        (format!("{stargate} directive quarantine list"), "the record that did not fit, and why"),
        (format!("{stargate} directive run sample"), "read it all again: nothing has changed"),
        (format!("{stargate} doctor"), "is everything well?"),
        (format!("{http}/api/v1/jobs"), "the same over HTTP"),
        (format!("{http}/metrics"), "for Prometheus"),
    ];
    if let Some([_, clip]) = cast.clip {
        rows.insert(4, (format!("{stargate} job show {clip}"), "the clip, and where its file is"));
    }
    if cast.push.is_some() {
        let repo = push::REPO;
        rows.extend([
            (format!("git clone {}", push::url(service.address)), "what was pushed; push more"),
            (format!("{stargate} mirror status"), "how far the mirror is"),
            (format!("{stargate} mirror verify --repo {repo}"), "both sides, ref by ref"),
            (format!("tail -n 2 repos/{repo}.git/.stargate/mirror-journal.ndjson"), "the journal"),
        ]);
    }
    out.note(format!("\n{}\n", output::bold("Look at it from another terminal")));
    out.note(format!("  cd {}", home.display()));
    let width = rows.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    for (command, about) in rows {
        out.note(format!("  {command:<width$}   {}", output::dim(about)));
    }
    out.note(format!("\nAll of it is described in {}.", home.join("stargate.toml").display()));
    out.note(output::bold("Ctrl-C ends the demo and removes its home."));
}
