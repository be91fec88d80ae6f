//! The alert rules, judged by Prometheus' own tool.

use crate::{command, of_project, service, succeed};

#[test]
fn the_alert_rules_are_well_formed_and_fire_when_they_should() {
    let promtool = service("STARGATE_TEST_PROMTOOL");
    let folder = of_project("deploy/prometheus");
    succeed(command(&promtool).current_dir(&folder).args(["check", "rules", "rules.yml"]));
    succeed(command(&promtool).current_dir(&folder).args(["test", "rules", "rules_test.yml"]));
}
