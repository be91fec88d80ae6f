//! What is shipped is described: every alert has a place in the guide.

use crate::text_of;

#[test]
fn every_alert_is_in_the_guide_with_what_to_do() {
    let guide = text_of("docs/guides/observability.md");
    let rules = text_of("deploy/prometheus/rules.yml");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 20, "{alerts:?}");
    for alert in alerts {
        assert!(guide.contains(&format!("| `{alert}` |")), "{alert} is not in docs/guides/observability.md");
    }
}
