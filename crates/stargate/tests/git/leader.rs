//! Pushes are the leader's.

use stargate_testkit::process::get;

use crate::client::{Client, ref_of};
use crate::{leader, leads, program};

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_serves_fetches_and_refuses_pushes_until_it_leads() {
    let program = program("[leader]\nretry_every = \"1s\"\n");
    let mut first = leader(&program, "first").await;
    let mut second = program.start_with(&["up"], &[("STARGATE_INSTANCE", "second")]);
    second.ready().await;
    program.answer(&["repo", "create", "r"]);
    let at = |address: &str| format!("http://{address}/git/r.git");
    let client = Client::new();
    client.clone_from(&at(second.address()));
    client.commit("first");
    let said = client.refused(&["push", "origin", "HEAD:main"]);
    assert!(said.contains("503"), "{said}");
    let path = "/git/r.git/info/refs?service=git-receive-pack";
    let (status, body) = get(second.address(), path).await.unwrap();
    assert_eq!(status, 503);
    assert!(body.contains("NOT_LEADER") && body.contains(first.address()), "{body}");
    client.must(&["push", "-q", &at(first.address()), "HEAD:main"]);
    client.must(&["fetch", "-q", "origin"]);
    assert_eq!(
        client.must(&["rev-parse", "origin/main"]),
        client.head(),
        "the standby serves what was pushed"
    );

    first.kill();
    leads(&program, &second).await;
    let next = client.commit("second");
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    let repo = program.home().join("repos/r.git");
    assert_eq!(ref_of(&repo, "refs/heads/main").as_deref(), Some(next.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_passed_on_keeps_its_token() {
    let program = program("[leader]\nforward_writes = true\n[kinds.quick]\nexec = [\"true\"]\n");
    let _first = leader(&program, "first").await;
    let mut second = program.start_with(&["serve"], &[("STARGATE_INSTANCE", "second")]);
    second.ready().await;
    let token = program.answer(&["token", "add", "ci", "--role", "write"]);
    let url = format!("http://{}/api/v1/jobs", second.address());
    let post = async |token: Option<&str>| {
        let request =
            reqwest::Client::new().post(&url).json(&serde_json::json!({ "kind": "quick", "payload": {} }));
        let request = token.into_iter().fold(request, reqwest::RequestBuilder::bearer_auth);
        request.send().await.unwrap().status().as_u16()
    };
    stargate_testkit::eventually(crate::PATIENCE, "both doors to close", || async {
        match post(None).await {
            401 => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
    assert_eq!(post(Some(&token)).await, 201);
    assert_eq!(post(Some("sg_nonsense")).await, 401);
}

#[test]
fn a_node_that_takes_writes_may_not_stay_out_of_leadership() {
    let program = program("[leader]\ncampaign = false\n");
    for role in ["up", "serve"] {
        let refused = program.run(&[role]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("leader.campaign is false") && said.contains("stargate worker"), "{said}");
    }
}
