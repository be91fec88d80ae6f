//! Whether the cluster is there, and somebody works on it.

use crate::cmd::doctor::Check;
use crate::config::Settings;
use crate::failure::Failure;

const CHECK: &str = "temporal";
const QUEUES: &str = "temporal queues";

/// Every check.
pub(crate) async fn checks(settings: &Settings) -> Vec<Check> {
    let cluster = match super::connect(settings).await {
        Ok(cluster) => cluster,
        Err(failure) => return vec![unreachable(failure)],
    };
    let queues = super::queues(settings);
    let found = match cluster.describe(&queues).await {
        Ok(found) => found,
        Err(error) => return vec![unreachable(error.into())],
    };
    let mut checks = vec![Check::ok(
        CHECK,
        format!(
            "server {} at {}, namespace {} keeps closed workflows for {}",
            found.server_version,
            settings.temporal.address,
            settings.temporal.namespace,
            found.retention.map_or_else(|| "an unknown time".to_owned(), crate::output::short),
        ),
    )];
    if !found.namespace_is_active {
        checks.push(Check::fail(
            "temporal namespace",
            format!("{} takes no new workflows", settings.temporal.namespace),
            "name another one with temporal.namespace (TEMPORAL_NAMESPACE)",
        ));
    }
    if !found.search_attributes_missing.is_empty() {
        checks.push(Check::warn(
            "temporal search attributes",
            format!("not there: {}", found.search_attributes_missing.join(", ")),
            "a worker registers them if it may; else 'temporal operator search-attribute create --type Keyword --name NAME' for each",
        ));
    }
    let unserved: Vec<&str> = found
        .polled
        .iter()
        .filter(|polled| !polled.is_served())
        .map(|polled| polled.queue.as_str())
        .collect();
    if queues.is_empty() {
        return checks;
    }
    checks.push(match unserved.as_slice() {
        [] => Check::ok(QUEUES, format!("{} have workers", queues.join(", "))),
        unserved => Check::warn(
            QUEUES,
            format!("nobody polls {}", unserved.join(", ")),
            "start 'stargate worker --engine temporal'; runs wait until then",
        ),
    });
    checks
}

fn unreachable(failure: Failure) -> Check {
    let remedy = failure.help.unwrap_or_else(|| {
        "are temporal.address (TEMPORAL_ADDRESS) and temporal.namespace (TEMPORAL_NAMESPACE) right, and does the \
         server run? 'temporal server start-dev' starts one"
            .to_owned()
    });
    Check::fail(CHECK, failure.message, remedy)
}
