//! A real Prometheus scrapes real nodes with work on them. Every query of the dashboard and of the alert rules is put to
//! it, and has to be understood; where there is data, it has to find some.

use std::collections::BTreeSet;
use std::process::{Child, Command};

use serde_json::Value;
use stargate_testkit::eventually;
use stargate_testkit::process::{Program, Running, free_port, get};
use tempfile::TempDir;

use crate::collector::Collector;
use crate::{PATIENCE, command, configured, of_project, service, text_of};

const TRACED: &str = r#"
[kinds."ok"]
exec = ["true"]
[kinds."bad"]
exec = ["sh", "-c", "exit 65"]
[kinds."nap"]
exec = ["sleep", "30"]
"#;

/// A Prometheus of the test's own.
struct Prometheus {
    child: Child,
    address: String,
    _data: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Prometheus {
    fn start(targets: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let rules = of_project("deploy/prometheus/rules.yml").canonicalize().unwrap();
        // Each is an installation of its own, with a leader of its own.
        let jobs = targets.iter().enumerate().map(|(index, target)| {
            format!("  - job_name: stargate-{index}\n    static_configs: [{{targets: ['{target}']}}]\n")
        });
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs:\n{}",
            rules.display(),
            jobs.collect::<String>()
        );
        std::fs::write(data.path().join("prometheus.yml"), config).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let log = std::fs::File::create(data.path().join("log.txt")).unwrap();
        let mut server: Command = command(&service("STARGATE_TEST_PROMETHEUS"));
        server.current_dir(data.path()).stderr(log);
        server.args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            "--enable-feature=exemplar-storage",
        ]);
        server.arg(format!("--web.listen-address={address}"));
        Self { child: server.spawn().unwrap(), address, _data: data }
    }

    /// What its API answers.
    async fn ask(&self, path: &str) -> Result<Value, String> {
        let answer = reqwest::get(format!("http://{}/api/v1/{path}", self.address)).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let answer: Value = answer.json().await.map_err(|error| error.to_string())?;
        if answer["status"] == "success" { Ok(answer["data"].clone()) } else { Err(answer.to_string()) }
    }

    async fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let encoded: String = url::form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let data = self.ask(&format!("query?query={encoded}")).await?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until a query finds something.
    async fn finds(&self, query: &str) {
        eventually(PATIENCE, query, || async {
            match self.query(query).await {
                Ok(found) if !found.is_empty() => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

/// The demo, which has one of everything, when it has played.
async fn demo(program: &Program) -> (Running, String) {
    let running = program.start(&["demo"]);
    let address = eventually(PATIENCE * 2, "a demo that has played", || {
        let log = running.log();
        async move {
            let address = log.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
            let played = log.contains("and its mirror");
            address.filter(|_| played).map(str::to_owned).ok_or(log)
        }
    })
    .await;
    (running, address)
}

/// The words of a query that are names of metrics, as they are in the catalogue.
fn metrics_of(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let families = [
        "worker_",
        "mirror_",
        "leader_",
        "api_",
        "kv_",
        "outbox_",
        "process_",
        "store_",
        "otel_",
        "stargate_",
    ];
    let named = words.filter(|word| families.iter().any(|family| word.starts_with(family)));
    named.map(|word| word.trim_end_matches("_bucket").to_owned()).collect()
}

/// The queries of the dashboard, as Grafana would send them.
fn queries_of_dashboard() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&text_of("deploy/grafana/stargate.json")).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((panel["title"].to_string(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for annotation in dashboard["annotations"]["list"].as_array().unwrap() {
        queries.push((annotation["name"].to_string(), annotation["expr"].as_str().unwrap().to_owned()));
    }
    let filled = |query: String| {
        query.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*")
    };
    queries.into_iter().map(|(title, query)| (title, filled(query))).collect()
}

#[test]
fn the_dashboard_and_the_rules_name_only_metrics_that_there_are() {
    let catalogue = text_of("docs/metrics.md");
    let dashboard = queries_of_dashboard();
    assert!(dashboard.len() > 50, "{}", dashboard.len());
    let rules = text_of("deploy/prometheus/rules.yml");
    let queries = dashboard.iter().map(|(_, query)| query.as_str()).chain([rules.as_str()]);
    let named: BTreeSet<String> = queries.flat_map(metrics_of).collect();
    for name in &named {
        assert!(catalogue.contains(&format!("| `{name}` |")), "{name} is not in docs/metrics.md");
    }
    let of_catalogue = catalogue.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let forgotten: Vec<&str> =
        of_catalogue.filter(|name| !named.contains(*name) && !name.starts_with("process_virtual")).collect();
    assert_eq!(forgotten, [""; 0], "nobody looks at these");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_and_of_the_rules_is_answered() {
    let collector = Collector::start().await;
    let demo_program = Program::new(env!("CARGO_BIN_EXE_stargate"));
    let (_demo, demo_address) = demo(&demo_program).await;
    let traced = configured(&format!("[otel]\nendpoint = \"{}\"\n{TRACED}", collector.endpoint));
    let mut node = traced.start(&["up"]);
    node.ready().await;
    let prometheus = Prometheus::start(&[&demo_address, node.address()]);
    prometheus.finds("count(up == 1) == 2").await;
    for kind in ["ok", "bad", "nap", "ok"] {
        traced.answer(&["job", "enqueue", kind]);
    }
    prometheus.finds("sum(worker_jobs_processed_total{kind=\"ok\", outcome=\"ok\"}) == 2").await;
    // A rate needs two samples: of what has just appeared the second one is yet to come.
    eventually(PATIENCE, "every query finds what there is", || async {
        let empty = queries_without_answer(&prometheus, &[&demo_address, node.address()]).await;
        if empty.is_empty() { Ok(()) } else { Err(format!("there is data, but these find none: {empty:#?}")) }
    })
    .await;
    check_rules(&prometheus).await;
    check_exemplars(&prometheus).await;
}

/// The queries of the dashboard that find nothing although the nodes tell everything that they ask for.
async fn queries_without_answer(prometheus: &Prometheus, nodes: &[&str]) -> Vec<String> {
    let mut scraped = String::new();
    for node in nodes {
        scraped += &get(node, "/metrics").await.unwrap().1;
    }
    let sampled = |name: &String| {
        scraped.lines().any(|line| {
            let rest = line.strip_prefix(name.as_str());
            let rest = rest.map(|rest| rest.strip_prefix("_bucket").unwrap_or(rest));
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        })
    };
    let mut empty = Vec::new();
    for (title, query) in queries_of_dashboard() {
        let found =
            prometheus.query(&query).await.unwrap_or_else(|error| panic!("{title}: {query}: {error}"));
        // What asks for changes finds none in a minute without any.
        let asks_for_data = !query.contains("changes(");
        if found.is_empty() && asks_for_data && metrics_of(&query).iter().all(sampled) {
            empty.push(format!("{title}: {query}"));
        }
    }
    empty
}

/// All rules are loaded, evaluated without an error, and none of them fires on nodes that are well.
async fn check_rules(prometheus: &Prometheus) {
    let groups = prometheus.ask("rules").await.unwrap();
    let rules: Vec<&Value> = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect();
    assert!(rules.len() > 20, "{groups}");
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        prometheus.query(rule["query"].as_str().unwrap()).await.unwrap();
        assert_ne!(
            (&rule["state"], &rule["labels"]["severity"]),
            (&"firing".into(), &"critical".into()),
            "{rule}"
        );
    }
}

/// The traces of executions are beside their buckets.
async fn check_exemplars(prometheus: &Prometheus) {
    eventually(PATIENCE, "an exemplar", || async {
        let query = "query_exemplars?query=worker_job_duration_seconds_bucket&start=0&end=9999999999";
        let found = prometheus.ask(query).await?;
        let trace = found[0]["exemplars"][0]["labels"]["trace_id"].as_str().unwrap_or_default().to_owned();
        if trace.len() == 32 { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}
