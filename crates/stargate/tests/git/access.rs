//! Tokens: who may clone, push and use the API.

use serde_json::{Value, json};
use stargate_testkit::process::{Program, get};

use crate::client::Client;
use crate::{json, leader, program, stderr};

fn token(program: &Program, arguments: &[&str]) -> String {
    let token = program.answer(&[&["token", "add"], arguments].concat());
    assert!(token.starts_with("sg_") && token.len() == 59, "not alone on standard output: {token:?}");
    token
}

/// A request with a token; status and body.
async fn api(method: &str, url: &str, token: Option<&str>) -> (u16, Value) {
    let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = reqwest::Client::new().request(method, url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = request.json(&json!({ "kind": "quick", "payload": {} })).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap_or(Value::Null))
}

const QUICK: &str = "[kinds.quick]\nexec = [\"true\"]\n";

#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_this_machine_may_clone_and_push() {
    let program = program("");
    let node = leader(&program, "a").await;
    program.answer(&["repo", "create", "team/tools"]);
    let url = format!("http://{}/git/team/tools.git", node.address());
    let (one, two) = (Client::new(), Client::new());
    one.clone_from(&url);
    let commit = one.commit("first");
    one.must(&["push", "-q", "origin", "HEAD:main"]);
    two.clone_from(&url);
    assert_eq!(two.head(), commit);
    let protocol = two.git_with(&["ls-remote"], &[("GIT_TRACE_PACKET", "1")]);
    assert!(stderr(&protocol).contains("version 2"), "{}", stderr(&protocol));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_a_foreign_name_gets_neither_git_nor_the_page() {
    let program = program("");
    let node = leader(&program, "a").await;
    program.answer(&["repo", "create", "tools"]);
    let call = async |path: &str, host: &str, token: Option<&str>| {
        let mut request =
            reqwest::Client::new().get(format!("http://{}{path}", node.address())).header("host", host);
        if let Some(token) = token {
            request = request.basic_auth("x", Some(token));
        }
        request.send().await.unwrap().status().as_u16()
    };
    // Probes may call by any name.
    assert_eq!(call("/healthz", "evil.example:8080", None).await, 200);
    let paths = ["/git/tools.git/info/refs?service=git-upload-pack", "/", "/api/v1/jobs", "/metrics"];
    for path in paths {
        assert_eq!(call(path, "evil.example:8080", None).await, 421, "{path}");
        assert_eq!(call(path, "localhost:8080", None).await, 200, "{path}");
    }
    // With a token it does not matter by which name it is called.
    let token = token(&program, &["reader", "--role", "read"]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while call(paths[0], "evil.example:8080", Some(&token)).await != 200 {
        assert!(std::time::Instant::now() < deadline, "the first token is not felt");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tokens_each_role_does_what_it_is_for() {
    let program = program(QUICK);
    let node = leader(&program, "a").await;
    program.answer(&["repo", "create", "team/tools"]);
    program.answer(&["repo", "create", "other"]);
    let [admin, write, read, gone] = [
        token(&program, &["boss", "--role", "admin"]),
        token(&program, &["ci", "--role", "write", "--repo", "team/*"]),
        token(&program, &["reader", "--role", "read"]),
        token(&program, &["old", "--role", "admin", "--expires", "1s"]),
    ];
    let at = |name: &str| format!("http://{}/git/{name}.git", node.address());

    let pusher = Client::with_token(&write);
    pusher.clone_from(&at("team/tools"));
    let commit = pusher.commit("first");
    pusher.must(&["push", "-q", "origin", "HEAD:main"]);
    let reader = Client::with_token(&read);
    reader.clone_from(&at("team/tools"));
    assert_eq!(reader.head(), commit);
    reader.commit("second");
    assert!(reader.refused(&["push", "origin", "HEAD:main"]).contains("403"));
    let elsewhere = pusher.refused(&["ls-remote", &at("other")]);
    let nowhere = pusher.refused(&["ls-remote", &at("nothing")]);
    assert_eq!(
        elsewhere.replace("other", "nothing"),
        nowhere,
        "what may not be seen is as if it were not there"
    );

    stargate_testkit::eventually(crate::PATIENCE, "the token to expire", || async {
        let (status, body) = api("GET", &format!("http://{}/api/v1/jobs", node.address()), Some(&gone)).await;
        if (status, body["error"]["code"].as_str()) == (401, Some("TOKEN_EXPIRED")) {
            Ok(())
        } else {
            Err(body.to_string())
        }
    })
    .await;
    // Another letter than the last one, whichever that is.
    let last = if read.ends_with('A') { 'B' } else { 'A' };
    let wrong = format!("{}{last}", &read[..read.len() - 1]);
    let unknown = "UNAUTHENTICATED: the token is not known";
    for (bad, why) in [
        (None, ""),
        (Some(gone.as_str()), "TOKEN_EXPIRED: the token has expired"),
        (Some(wrong.as_str()), unknown),
        (Some("sg_nonsense"), unknown),
    ] {
        let client = bad.map_or_else(Client::new, Client::with_token);
        client.start_at(&at("team/tools"));
        client.commit("evil");
        for arguments in [&["ls-remote", "origin"][..], &["push", "origin", "HEAD:evil"]] {
            let said = client.refused(arguments);
            assert!(
                said.contains("Authentication failed") || said.contains("could not read Username"),
                "{said}"
            );
            assert!(said.contains(why), "{said}");
        }
    }
    let api_at = |path: &str| format!("http://{}/api/v1/{path}", node.address());
    for (method, path, statuses) in [
        ("GET", "jobs", [401, 200, 200, 403]),
        ("POST", "jobs", [401, 201, 403, 403]),
        ("POST", "queues/default/pause", [401, 200, 403, 403]),
    ] {
        let tokens = [None, Some(&admin), Some(&read), Some(&write)];
        for (token, status) in tokens.into_iter().zip(statuses) {
            let (said, body) = api(method, &api_at(path), token.map(String::as_str)).await;
            assert_eq!(said, status, "{method} {path}: {body}");
        }
    }
    for open in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(get(node.address(), open).await.unwrap().0, 200, "{open}");
    }
    // Which token it was is in the log; its secret is not.
    let log = node.log();
    for secret in [&admin, &write, &read, &gone, &wrong] {
        assert!(!log.contains(&secret[16..]), "the log holds a token");
    }
    for (token, why) in [(&gone, "ExpiredToken"), (&wrong, "UnknownToken")] {
        let noted = |line: &str| line.contains("a token was refused") && line.contains(why);
        assert!(log.lines().any(|line| noted(line) && line.contains(&token[3..15])), "{why}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_good_no_more_and_listings_do_not_show_any() {
    let program = program("");
    let node = leader(&program, "a").await;
    program.answer(&["repo", "create", "r"]);
    let text = token(&program, &["ci", "--role", "write"]);
    let client = Client::with_token(&text);
    client.clone_from(&format!("http://{}/git/r.git", node.address()));
    let listed = json(&program, &["token", "list", "--json"]);
    assert_eq!((&listed[0]["name"], &listed[0]["grants"]), (&json!("ci"), &json!(["write:*"])), "{listed}");
    assert!(
        !listed.to_string().contains(&text[16..])
            && !program.answer(&["token", "list"]).contains(&text[16..])
    );
    let id = listed[0]["id"].as_str().unwrap();
    assert!(program.answer(&["token", "revoke", id]).contains("is revoked"));
    assert!(program.answer(&["token", "revoke", id]).contains("was revoked before"));
    stargate_testkit::eventually(crate::PATIENCE, "the revocation to be felt", || {
        let output = client.git(&["ls-remote", "origin"]);
        async move { if output.status.success() { Err("still good".to_owned()) } else { Ok(()) } }
    })
    .await;
    let said = client.refused(&["ls-remote", "origin"]);
    assert!(said.contains("TOKEN_REVOKED: the token was revoked"), "{said}");
    assert_eq!(program.run(&["token", "revoke", "abcdefghijkl"]).status.code(), Some(3));
    assert_eq!(program.run(&["token", "revoke", &text]).status.code(), Some(5));
    assert!(!stderr(&program.run(&["token", "revoke", &text])).contains(&text[16..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_ask_a_node_take_the_token_from_the_environment() {
    let program = program("");
    let node = leader(&program, "a").await;
    let url = format!("http://{}", node.address());
    let admin = token(&program, &["boss", "--role", "admin"]);
    stargate_testkit::eventually(crate::PATIENCE, "the door to close", || {
        let refused = program.run(&["leader", "step-down", "--url", &url, "--json"]);
        async move {
            let said = stderr(&refused);
            if said.contains("UNAUTHENTICATED") && said.contains("STARGATE_TOKEN") {
                Ok(())
            } else {
                Err(said)
            }
        }
    })
    .await;
    let program = program.with("STARGATE_TOKEN", admin);
    program.answer(&["leader", "step-down", "--url", &url]);
}

#[tokio::test(flavor = "multi_thread")]
async fn listening_for_others_needs_a_token_first() {
    let program = program("");
    let everywhere = ["up", "--listen", "0.0.0.0:0"];
    for role in ["up", "serve", "worker"] {
        let refused = program.run(&[role, "--listen", "0.0.0.0:0"]);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        let said = stderr(&refused);
        assert!(said.contains("stargate token add"), "{said}");
    }
    token(&program, &["boss", "--role", "admin"]);
    let mut node = program.start(&everywhere);
    stargate_testkit::eventually(crate::PATIENCE, "the node to listen", || {
        let log = node.log();
        async move { if log.contains("listening on http://0.0.0.0:") { Ok(()) } else { Err(log) } }
    })
    .await;
    let log = node.log();
    let port = log.split("http://0.0.0.0:").nth(1).unwrap();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    assert_eq!(get(&format!("127.0.0.1:{port}"), "/api/v1/jobs").await.unwrap().0, 401, "on loopback too");
    node.terminate();
    assert!(node.ended(crate::PATIENCE).await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_lead_elsewhere_are_not_found() {
    let program = program("");
    let node = leader(&program, "a").await;
    program.answer(&["repo", "create", "r"]);
    let outside = program.home().join("outside.git");
    Client::new().must(&["init", "-q", "--bare", outside.to_str().unwrap()]);
    for path in [
        "/git/../outside.git",
        "/git/%2e%2e/outside.git",
        "/git/r.git/../../outside.git",
        "/git/..%2foutside.git",
        "/git//etc.git",
        "/git/r%00.git",
        "/git/.trash.git",
        "/git/r.git/config",
        "/git/r.git/HEAD",
    ] {
        let (status, body) =
            get(node.address(), &format!("{path}/info/refs?service=git-upload-pack")).await.unwrap();
        assert!(matches!(status, 400 | 404), "{path}: {status} {body}");
    }
    for name in ["../x", "/x", ".x", "-x", "a/b/c/d", "a b", ""] {
        assert_ne!(program.run(&["repo", "create", "--", name]).status.code(), Some(0), "{name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_place_for_repositories_the_rest_goes_on_unless_somebody_chose_the_place() {
    let program = program("");
    std::fs::write(program.home().join("repos"), "").unwrap();
    let node = leader(&program, "a").await;
    assert!(node.log().contains("/git is not served"), "{}", node.log());
    let (status, _) = get(node.address(), "/git/r.git/info/refs?service=git-upload-pack").await.unwrap();
    assert_eq!(status, 404);
    let chosen = program.home().join("repos");
    let program = crate::program(&format!("[git]\nroot = {chosen:?}\n"));
    let refused = program.run(&["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.status.code(), Some(5), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("git.root"), "{}", stderr(&refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_made_listed_and_moved_to_the_trash() {
    let program = program("");
    let node = leader(&program, "a").await;
    let made = json(&program, &["repo", "create", "team/tools", "--branch", "trunk", "--json"]);
    assert_eq!(made["default_branch"], "refs/heads/trunk", "{made}");
    assert_eq!(program.run(&["repo", "create", "team/tools"]).status.code(), Some(4));
    let listed = json(&program, &["repo", "list", "--json"]);
    assert_eq!((&listed[0]["name"], listed.as_array().unwrap().len()), (&json!("team/tools"), 1), "{listed}");
    let removed = json(&program, &["repo", "remove", "team/tools", "--json"]);
    assert!(std::path::Path::new(removed["trash"].as_str().unwrap()).join("HEAD").is_file(), "{removed}");
    assert_eq!(json(&program, &["repo", "list", "--json"]), json!([]));
    assert_eq!(program.run(&["repo", "remove", "team/tools"]).status.code(), Some(3));
    let url = format!("http://{}/git/team/tools.git", node.address());
    assert!(Client::new().refused(&["ls-remote", &url]).contains("not found"));
}

/// It does not know the settings that have a push on disk before it is acknowledged (INV-1).
#[tokio::test(flavor = "multi_thread")]
async fn with_a_git_that_is_too_old_nothing_is_served_and_the_rest_goes_on() {
    let program = program("");
    let git = program.home().join("old-git");
    std::fs::write(&git, "#!/bin/sh\necho git version 2.35.8\n").unwrap();
    std::fs::set_permissions(&git, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(program.home().join("stargate.toml"), format!("[git]\nprogram = {git:?}\n")).unwrap();
    let node = leader(&program, "a").await;
    assert!(node.log().contains("2.36 or newer is needed"), "{}", node.log());
    let (status, _) = get(node.address(), "/git/r.git/info/refs?service=git-upload-pack").await.unwrap();
    assert_eq!(status, 404);
}
