//! `stargate webhook …`: which servers are told of pushes.

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;
use stargate_queue::Error;
use stargate_repo::store::PAGE_MAX;
use stargate_repo::{NewWebhook, Occasion, Pushes, Webhook, WebhookId};

use crate::assemble::Stores;
use crate::auditing::audited;
use crate::failure::{Failure, Result};
use crate::output;
use crate::run::App;

/// Stands for all repositories, as in the patterns of tokens.
const ALL: &str = "*";

/// `webhook …`
#[derive(Debug, Subcommand)]
pub(crate) enum WebhookCommand {
    /// Tell a server of pushes to a repository; entered again, secret and events are replaced
    Add(Add),
    /// List webhooks: of which repository, to where, of what, signed with which secret
    List(List),
    /// Remove a webhook; what still waited to be delivered to it is dropped
    Remove(Remove),
}

/// `webhook add`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate webhook add team/tools https://ci.example.com/hook --secret ci
  stargate webhook add '*' https://chat.example.com/git --events create,delete

A secret is named here and kept under [webhooks.secrets] of stargate.toml. With it the
body is signed: 'X-Stargate-Signature: t=SECONDS,v1=HEX', where HEX is HMAC-SHA256 of
'SECONDS.BODY'. A delivery that fails is tried 12 times over some five hours, under the
same number in 'X-Stargate-Delivery'; 'stargate job list --kind webhook:deliver' shows
them. Addresses in private networks need webhooks.allow_private = true.")]
pub(crate) struct Add {
    /// The repository, as listed; '*' for all of them
    repo: String,
    /// Where each ref of a push is POSTed to as JSON
    url: String,
    /// The name of the secret that signs, under [webhooks.secrets] [default: not signed]
    #[arg(long, value_name = "NAME")]
    secret: Option<String>,
    /// What it is told of: every ref that moves (push), refs that appear (create), refs that go (delete)
    #[arg(long, value_name = "EVENT", value_delimiter = ',', default_value = "push")]
    events: Vec<EventName>,
}

/// `webhook list`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only those that are told of pushes to this repository
    repo: Option<String>,
}

/// `webhook remove`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stargate webhook remove 3")]
pub(crate) struct Remove {
    /// Its number, as listed
    #[arg(value_parser = webhook_id)]
    id: WebhookId,
}

fn webhook_id(text: &str) -> Result<WebhookId, String> {
    text.parse().map_err(|_| "a webhook's id is a number; 'stargate webhook list' shows them".to_owned())
}

/// The events as they are written. The values carry no text of their own, which keeps the help short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventName {
    Push,
    Create,
    Delete,
}

impl From<EventName> for Occasion {
    fn from(name: EventName) -> Self {
        match name {
            EventName::Push => Self::Push,
            EventName::Create => Self::Create,
            EventName::Delete => Self::Delete,
        }
    }
}

#[derive(Serialize)]
struct WebhookView<'a> {
    id: WebhookId,
    /// Absent where it is told of all repositories.
    repo: Option<&'a str>,
    url: &'a str,
    secret: Option<&'a str>,
    events: Vec<&'static str>,
    created_at: Timestamp,
}

fn view(webhook: &Webhook) -> WebhookView<'_> {
    let NewWebhook { repo, url, secret_ref, events } = &webhook.hook;
    WebhookView {
        id: webhook.id,
        repo: repo.as_deref(),
        url,
        secret: secret_ref.as_deref(),
        events: events.iter().map(|event| event.as_str()).collect(),
        created_at: webhook.created_at,
    }
}

impl WebhookCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let stores = app.stores().await?;
        match self {
            Self::Add(add) => add.run(app, &stores).await,
            Self::List(list) => list.run(app, &*stores.pushes, stores.jobs.now().await?).await,
            Self::Remove(remove) => remove.run(app, &stores).await,
        }
    }
}

impl Add {
    async fn run(&self, app: &App, stores: &Stores) -> Result<()> {
        if let Some(name) = &self.secret {
            app.settings.webhooks.check_secret(name)?;
        }
        let hook = self.hook();
        let events: Vec<&str> = hook.events.iter().map(|event| event.as_str()).collect();
        let detail = serde_json::json!({ "url": hook.url, "events": events });
        let work = async { stores.pushes.webhook_put(hook.clone()).await.map_err(failure) };
        let id = audited(&stores.audit, "webhook.add", &self.repo, detail, work).await?;
        match app.out.json {
            true => app.out.json(&serde_json::json!({
                "id": id, "repo": hook.repo, "url": hook.url, "secret": hook.secret_ref, "events": events,
            })),
            false => {
                let signed = match &self.secret {
                    Some(name) => format!("signed with {name}"),
                    None => "not signed".to_owned(),
                };
                app.out.line(format!("webhook {id} of {}: {}, {signed}", self.repo, events.join(", ")));
            }
        }
        Ok(())
    }

    fn hook(&self) -> NewWebhook {
        let mut events: Vec<Occasion> = Vec::new();
        for event in self.events.iter().map(|name| Occasion::from(*name)) {
            if !events.contains(&event) {
                events.push(event);
            }
        }
        NewWebhook {
            repo: (self.repo != ALL).then(|| self.repo.clone()),
            url: self.url.clone(),
            secret_ref: self.secret.clone(),
            events,
        }
    }
}

/// A repository that was made by other means is entered by its first push.
fn failure(error: Error) -> Failure {
    match &error {
        Error::NotFound { what: "repository", .. } => Failure::from(error).help(
            "'stargate repo list' shows what there is; one that was not made with 'stargate repo create' is known \
             from its first push on",
        ),
        _ => error.into(),
    }
}

impl List {
    async fn run(&self, app: &App, pushes: &dyn Pushes, now: Timestamp) -> Result<()> {
        let mut all = webhooks(pushes).await?;
        if let Some(name) = self.repo.as_deref().filter(|name| *name != ALL) {
            if pushes.repo(name).await?.is_none() {
                return Err(failure(Error::NotFound { what: "repository", name: name.to_owned() }));
            }
            all.retain(|webhook| webhook.hook.repo.as_deref().is_none_or(|repo| repo == name));
        }
        if app.out.json {
            app.out.json(&all.iter().map(view).collect::<Vec<_>>());
            return Ok(());
        }
        let mut table = output::table(&["id", "repo", "url", "events", "secret", "created"]);
        for webhook in &all {
            let view = view(webhook);
            table.add_row(vec![
                view.id.to_string(),
                view.repo.unwrap_or(ALL).to_owned(),
                view.url.to_owned(),
                view.events.join(", "),
                view.secret.unwrap_or("-").to_owned(),
                output::when(view.created_at, now),
            ]);
        }
        app.out.table(&table, "no webhooks; 'stargate webhook add --help' shows how to enter one");
        Ok(())
    }
}

/// All of them, by number.
pub(crate) async fn webhooks(pushes: &dyn Pushes) -> Result<Vec<Webhook>> {
    let mut all: Vec<Webhook> = Vec::new();
    loop {
        let page = pushes.webhooks(all.last().map(|webhook| webhook.id), PAGE_MAX).await?;
        let is_last = page.len() < PAGE_MAX as usize;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

impl Remove {
    async fn run(&self, app: &App, stores: &Stores) -> Result<()> {
        let work = async {
            match stores.pushes.webhook_remove(self.id).await? {
                true => Ok(()),
                false => Err(Error::NotFound { what: "webhook", name: self.id.to_string() }),
            }
        };
        audited(&stores.audit, "webhook.remove", self.id, serde_json::Value::Null, work).await?;
        match app.out.json {
            true => app.out.json(&serde_json::json!({ "id": self.id, "removed": true })),
            false => app.out.line(format!("webhook {} is removed", self.id)),
        }
        Ok(())
    }
}
