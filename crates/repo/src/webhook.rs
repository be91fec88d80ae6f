//! Webhooks: who wants to hear of which pushes, and the rows that make sure that they do.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_queue::handler::Failure;
use stargate_queue::{Error, Result};
use url::Url;

use crate::push::{PushEvent, RefUpdate};
use crate::repository::check_name;

/// How long an address may be.
pub const URL_BYTES_MAX: usize = 2000;
/// Hooks of one repository, and hooks of all of them, at most.
pub const HOOKS_MAX: u32 = 100;

stargate_queue::id! {
    /// Names a hook.
    WebhookId
}
stargate_queue::id! {
    /// Names a row of the outbox: one event for one hook. A receiver that sees it twice has heard of it before.
    DeliveryId
}

/// What a hook wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Occasion {
    /// Every ref that moves, appears or goes.
    Push,
    /// Refs that appear.
    Create,
    /// Refs that go.
    Delete,
}

impl Occasion {
    /// Its name in JSON, in SQL and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }

    /// Whether a ref that moved like this is one.
    pub fn covers(self, update: &RefUpdate) -> bool {
        match self {
            Self::Push => true,
            Self::Create => update.creates(),
            Self::Delete => update.deletes(),
        }
    }
}

/// A hook to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWebhook {
    /// Of which repository; of all of them when absent.
    pub repo: Option<String>,
    /// Where to send. With the repository it names the hook: put again, the rest is replaced.
    pub url: String,
    /// The name under which the configuration knows the secret that signs what is sent. Never the secret itself.
    pub secret_ref: Option<String>,
    /// What it wants to hear of.
    pub events: Vec<Occasion>,
}

impl NewWebhook {
    /// Refuses impossible values, naming the field. The address is not repeated: its path may be a password.
    pub fn check(&self) -> Result<()> {
        if let Some(repo) = &self.repo {
            check_name(repo)?;
        }
        check_url(&self.url)?;
        if let Some(name) = &self.secret_ref {
            check_secret_name("secret_ref", name)?;
        }
        if self.events.is_empty() || self.events.len() > 3 {
            return Err(Error::invalid("events", "is to name one to three of push, create and delete"));
        }
        Ok(())
    }
}

/// Refuses what cannot be the name of a secret. It is not repeated: somebody may have written the secret itself.
pub fn check_secret_name(field: &'static str, name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if (1..=100).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(Error::invalid(field, "is the name of a secret: 1 to 100 letters, digits and _ . - are allowed"))
}

fn check_url(text: &str) -> Result<()> {
    let odd = text.chars().any(|c| c.is_control() || c.is_whitespace());
    let parsed = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = parsed.filter(|url| url.host().is_some() && !odd && text.len() <= URL_BYTES_MAX) else {
        let problem =
            format!("is not an address of up to {URL_BYTES_MAX} bytes such as https://example.com/hook");
        return Err(Error::invalid("url", problem));
    };
    if !url.username().is_empty() || url.password().is_some() {
        let problem =
            "holds a user or a password, which would be kept and shown; sign with secret_ref instead";
        return Err(Error::invalid("url", problem));
    }
    Ok(())
}

/// A hook as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Its number.
    pub id: WebhookId,
    /// What it is.
    pub hook: NewWebhook,
    /// When it was entered.
    pub created_at: Timestamp,
}

impl Webhook {
    /// Whether it wants to hear of a ref that moved like this.
    pub fn wants(&self, update: &RefUpdate) -> bool {
        self.hook.events.iter().any(|occasion| occasion.covers(update))
    }
}

/// One event for one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its number.
    pub id: DeliveryId,
    /// What happened.
    pub event: PushEvent,
    /// Who wants to hear of it.
    pub hook: Webhook,
    /// When the hook's server took it, if it did.
    pub delivered_at: Option<Timestamp>,
}

impl Delivery {
    /// What is sent.
    pub fn body(&self) -> serde_json::Value {
        let RefUpdate { ref_name, old_oid, new_oid } = &self.event.update;
        serde_json::json!({
            "delivery": self.id,
            "event": "push",
            "repo": self.event.repo,
            "ref": ref_name,
            "before": old_oid,
            "after": new_oid,
            "created": self.event.update.creates(),
            "deleted": self.event.update.deletes(),
            "pusher": self.event.pusher,
            "request_id": self.event.request_id,
            "at": self.event.received_at,
        })
    }
}

/// Brings deliveries to the servers of hooks. Whoever implements it resolves `secret_ref`, signs, and guards against
/// addresses inside the own network.
#[async_trait]
pub trait Courier: Send + Sync + 'static {
    /// Sends; well only when the server has taken it. A failure never holds the address's path or a secret.
    async fn deliver(&self, delivery: &Delivery) -> std::result::Result<(), Failure>;

    /// Deliveries that one process makes at once; as many as it has room for when absent.
    fn at_once(&self) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook() -> NewWebhook {
        NewWebhook {
            repo: Some("a".into()),
            url: "https://example.com/h".into(),
            secret_ref: Some("HOOK_1".into()),
            events: vec![Occasion::Push],
        }
    }

    fn update(old: char, new: char) -> RefUpdate {
        let oid = |c: char| c.to_string().repeat(40);
        RefUpdate { ref_name: "refs/heads/x".into(), old_oid: oid(old), new_oid: oid(new) }
    }

    #[test]
    fn a_hook_hears_of_what_it_asked_for() {
        let hears = |occasion: Occasion, old, new| occasion.covers(&update(old, new));
        for (occasion, moved, created, deleted) in [
            (Occasion::Push, true, true, true),
            (Occasion::Create, false, true, false),
            (Occasion::Delete, false, false, true),
        ] {
            assert_eq!(hears(occasion, 'a', 'b'), moved, "{occasion:?}");
            assert_eq!(hears(occasion, '0', 'b'), created, "{occasion:?}");
            assert_eq!(hears(occasion, 'a', '0'), deleted, "{occasion:?}");
            assert_eq!(serde_json::to_value(occasion).unwrap(), occasion.as_str());
        }
    }

    #[test]
    fn a_bad_hook_is_refused_by_field_and_its_address_is_not_repeated() {
        hook().check().unwrap();
        let long = format!("https://example.com/{}", "x".repeat(URL_BYTES_MAX));
        let cases = [
            ("repo", NewWebhook { repo: Some("..".into()), ..hook() }),
            ("url", NewWebhook { url: "ftp://example.com/canary".into(), ..hook() }),
            ("url", NewWebhook { url: "canary".into(), ..hook() }),
            ("url", NewWebhook { url: "https://user:canary@example.com/".into(), ..hook() }),
            ("url", NewWebhook { url: "https://canary@example.com/".into(), ..hook() }),
            ("url", NewWebhook { url: long, ..hook() }),
            ("secret_ref", NewWebhook { secret_ref: Some(String::new()), ..hook() }),
            ("secret_ref", NewWebhook { secret_ref: Some("a b".into()), ..hook() }),
            ("events", NewWebhook { events: vec![], ..hook() }),
        ];
        for (field, bad) in cases {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{field} ")), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
