//! The same with the store in Postgres: what hooks need of it, and where its password does not appear.

use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;

use crate::client::Client;
use crate::{PATIENCE, json, leader, program};

const PASSWORD: &str = "hunter2canary";

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_recorded_in_postgres_and_its_password_is_written_nowhere() {
    let database = Database::create(async |url: String| {
        Postgres::connect(&url, Options { migrate: true, ..Options::default() }).await.unwrap();
    })
    .await;
    // Servers that ask for no password take any.
    let mut url = url::Url::parse(database.url()).unwrap();
    url.set_password(Some(PASSWORD)).unwrap();
    // In the server's environment, which hooks do not have, over a file that would lead them elsewhere.
    let toml = "store = \"postgres://nobody@127.0.0.1:1/none\"\n";
    let program = program(toml).with("DATABASE_URL", url.as_str());
    let node = leader(&program, "a").await;
    program.answer(&["repo", "create", "r"]);
    let client = Client::new();
    client.clone_from(&format!("http://{}/git/r.git", node.address()));
    let commit = client.commit("first");
    let output = client.git(&["push", "origin", "HEAD:main"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    eventually(PATIENCE, "the commit of the branch", || {
        let listed = json(&program, &["repo", "list", "--json"]);
        let known = listed[0]["default_oid"] == commit.as_str();
        async move { if known { Ok(()) } else { Err(listed.to_string()) } }
    })
    .await;
    let repo = program.home().join("repos/r.git");
    for file in ["hooks/pre-receive", "hooks/post-receive", "config"] {
        let text = std::fs::read_to_string(repo.join(file)).unwrap();
        assert!(!text.contains(PASSWORD), "{file}: {text}");
    }
    assert!(!node.log().contains(PASSWORD) && !said.contains(PASSWORD));
    drop(node);
    database.remove().await;
}
