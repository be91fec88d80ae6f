//! Webhooks: each can be signed with the secret it names.

use stargate_repo::Pushes;

use super::Check;
use crate::cmd::webhook::webhooks;
use crate::config::Settings;

const CHECK: &str = "webhooks";

/// The only check; none where there are no webhooks.
pub(super) async fn check(pushes: &dyn Pushes, settings: &Settings) -> Option<Check> {
    let all = match webhooks(pushes).await {
        Ok(all) => all,
        Err(failure) => {
            return Some(Check::fail(
                CHECK,
                failure.message,
                "see what the other checks say about the store",
            ));
        }
    };
    let missing = all.iter().filter_map(|webhook| {
        let name = webhook.hook.secret_ref.as_ref()?;
        settings.webhooks.check_secret(name).is_err().then(|| format!("{} needs {name}", webhook.id))
    });
    let missing: Vec<String> = missing.collect();
    match (all.len(), missing.as_slice()) {
        (0, _) => None,
        (count, []) => Some(Check::ok(CHECK, format!("{count}, with all their secrets"))),
        (_, missing) => Some(Check::fail(
            CHECK,
            format!("secrets are not there: webhook {}", missing.join(", ")),
            "add them under [webhooks.secrets] of stargate.toml, on every worker",
        )),
    }
}
