//! How old cursors are, for whoever looks at the metrics.

use std::time::Duration;

use stargate_directive::metrics::CURSOR_LAG;
use stargate_directive::store::PAGE_MAX;
use stargate_directive::{Key, SharedDirectives};
use stargate_queue::SharedStore;
use tokio_util::sync::CancellationToken;

/// How often it is looked: a lag is of interest in minutes.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Looks until told to stop.
pub(crate) async fn run(store: SharedDirectives, jobs: SharedStore, stop: CancellationToken) {
    loop {
        if let Err(error) = look(&store, &jobs).await {
            tracing::debug!(%error, "the age of cursors is not known");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

async fn look(store: &SharedDirectives, jobs: &SharedStore) -> stargate_queue::Result<()> {
    let now = jobs.now().await?;
    let mut after: Option<Key> = None;
    loop {
        let page = store.kv_list("tenant/", after.as_ref().map(Key::as_str), PAGE_MAX).await?;
        for entry in &page {
            if let Some(directive) = directive_of(&entry.key) {
                let lag = now.duration_since(entry.updated_at).as_secs_f64().max(0.0);
                metrics::gauge!(CURSOR_LAG, "directive" => directive.to_owned()).set(lag);
            }
        }
        match page.last() {
            Some(last) if page.len() >= PAGE_MAX as usize => after = Some(last.key.clone()),
            _ => return Ok(()),
        }
    }
}

/// The directive whose cursor lies at a key.
fn directive_of(key: &Key) -> Option<&str> {
    match key.as_str().split('/').collect::<Vec<_>>()[..] {
        ["tenant", _, "project", _, "directive", name, "cursor"] => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cursors_have_a_lag() {
        let of = |path: &str| {
            let key = Key::new("acme", "core", path).unwrap();
            directive_of(&key).map(str::to_owned)
        };
        assert_eq!(of("directive/issues/cursor").as_deref(), Some("issues"));
        assert_eq!(of("directive/issues/cursor/partial"), None);
        assert_eq!(of("directive/issues/run"), None);
    }
}
