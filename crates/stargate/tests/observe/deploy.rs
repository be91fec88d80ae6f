//! What `deploy` has: it is well-formed, the program takes its configurations, and the Debian package installs.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stargate_testkit::process::Program;

use crate::{command, configured, of_project, service, succeed, text_of};

/// YAML as JSON, by the library of a program that tests use anyway.
fn yaml(path: &str) -> Vec<Value> {
    let python = Path::new(&service("STARGATE_TEST_SCHEMATHESIS")).with_file_name("python");
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let output = succeed(command(python.to_str().unwrap()).args(["-c", script]).arg(of_project(path)));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a configuration becomes; it has to be accepted.
fn accepted(program: &Program) -> Value {
    serde_json::from_str(&program.answer(&["config", "show", "--json"])).unwrap()
}

fn with_servers(toml: &str) -> Program {
    configured(toml)
        .with("DATABASE_URL", "postgres://u:canary@db/stargate")
        .with("REDIS_URL", "redis://:canary@r")
}

#[test]
fn the_example_configurations_are_accepted() {
    let one = accepted(&configured(&text_of("deploy/config/one-node.toml"))).to_string();
    assert!(one.contains("127.0.0.1:8080") && one.contains("100000"), "{one}");
    let two = accepted(&with_servers(&text_of("deploy/config/two-nodes.toml"))).to_string();
    assert!(two.contains("0.0.0.0:8080") && two.contains("redis") && !two.contains("canary"), "{two}");
    // What is only a comment there is as right as the rest.
    let opened = text_of("deploy/config/one-node.toml")
        .lines()
        .map(|line| {
            line.strip_prefix("# ")
                .filter(|rest| rest.starts_with('[') || rest.contains(" = "))
                .unwrap_or(line)
        })
        .collect::<Vec<_>>()
        .join("\n");
    assert!(accepted(&configured(&opened)).to_string().contains("4318"), "{opened}");
}

#[test]
fn one_node_passes_its_doctor() {
    let toml = text_of("deploy/config/one-node.toml").replace("/var/lib/stargate", "home");
    let output = configured(&toml).run(&["doctor", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_kubernetes_manifests_fit_together_and_their_configuration_is_accepted() {
    let documents = yaml("deploy/kubernetes/stargate.yml");
    let of_kind =
        |kind: &str| documents.iter().filter(|one| one["kind"] == kind).cloned().collect::<Vec<_>>();
    let config = &of_kind("ConfigMap")[0]["data"]["stargate.toml"];
    let settings = accepted(&with_servers(config.as_str().unwrap())).to_string();
    assert!(settings.contains("0.0.0.0:8080"), "{settings}");
    let deployments = of_kind("Deployment");
    assert_eq!(deployments.len(), 2);
    for deployment in &deployments {
        let pod = &deployment["spec"]["template"];
        assert_eq!(deployment["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"], "{deployment}");
        assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], true);
        // More than worker.shutdown_timeout, what follows it and preStop.
        assert!(pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap() >= 30 + 15 + 5);
        let container = &pod["spec"]["containers"][0];
        for (probe, path) in
            [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")]
        {
            assert_eq!(container[probe]["httpGet"]["path"], path, "{container}");
        }
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
        let port = container["ports"][0]["containerPort"].to_string();
        assert_eq!(pod["metadata"]["annotations"]["prometheus.io/port"], port);
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        for mount in container["volumeMounts"].as_array().unwrap() {
            assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
        }
    }
    let guarded: Vec<Value> = of_kind("PodDisruptionBudget")
        .iter()
        .map(|one| one["spec"]["selector"]["matchLabels"].clone())
        .collect();
    assert!(
        deployments.iter().all(|one| guarded.contains(&one["spec"]["selector"]["matchLabels"])),
        "{guarded:?}"
    );
    assert_eq!(of_kind("Service")[0]["spec"]["selector"], deployments[0]["spec"]["selector"]["matchLabels"]);
}

#[test]
fn the_image_does_not_run_as_root_and_its_files_are_there() {
    let dockerfile = text_of("deploy/docker/Dockerfile");
    assert!(dockerfile.contains("\nUSER 10001:10001\n"), "{dockerfile}");
    let images: Vec<&str> = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(images.len(), 2, "{images:?}");
    assert!(images.iter().all(|image| !image.contains('/')), "no image names a server: {images:?}");
    let toolchain = text_of("Cargo.toml");
    let version = toolchain.lines().find_map(|line| line.strip_prefix("rust-version = \"")).unwrap();
    assert!(images[0].starts_with(&format!("rust:{}-", version.trim_end_matches('"'))), "{images:?}");
    let compose = &yaml("deploy/docker/compose.yml")[0];
    for node in ["a", "b"] {
        assert_eq!(compose["services"][node]["read_only"], true);
        assert_eq!(compose["services"][node]["environment"]["STARGATE_INSTANCE"], node);
    }
    let file = compose["configs"]["stargate"]["file"].as_str().unwrap();
    assert!(of_project("deploy/docker").join(file).is_file(), "{file}");
}

/// The assets of the Debian package: where each is, where it goes, and who may do what with it.
fn assets() -> Vec<(PathBuf, String, String)> {
    let manifest: toml::Table = text_of("crates/stargate/Cargo.toml").parse().unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    let assets = deb["assets"].as_array().unwrap().iter().map(|asset| {
        let text = |index: usize| asset[index].as_str().unwrap().to_owned();
        let from = match text(0).as_str() {
            "target/release/stargate" => PathBuf::from(env!("CARGO_BIN_EXE_stargate")),
            other => Path::new(env!("CARGO_MANIFEST_DIR")).join(other),
        };
        let to = if text(1).ends_with('/') {
            format!("{}{}", text(1), from.file_name().unwrap().to_str().unwrap())
        } else {
            text(1)
        };
        (from, to, text(2))
    });
    assets.collect()
}

#[test]
fn the_debian_package_is_built_and_what_it_installs_works() {
    let place = tempfile::tempdir().unwrap();
    let (tree, package, root) =
        (place.path().join("tree"), place.path().join("stargate.deb"), place.path().join("root"));
    for (from, to, mode) in assets() {
        assert!(from.is_file(), "{} is not there", from.display());
        succeed(command("install").args(["-D", "-m", &mode]).arg(&from).arg(tree.join(to)));
    }
    let control = tree.join("DEBIAN");
    std::fs::create_dir(&control).unwrap();
    let text = "Package: stargate\nVersion: 0.1.0\nArchitecture: all\nMaintainer: The Stargate project <maintainers@stargate.example>\n\
                Description: The durable worker platform\n";
    std::fs::write(control.join("control"), text).unwrap();
    std::fs::write(control.join("conffiles"), "/etc/stargate/stargate.toml\n").unwrap();
    succeed(command("install").args(["-m", "755"]).arg(of_project("deploy/debian/postinst")).arg(&control));
    succeed(command("sh").arg("-n").arg(control.join("postinst")));
    // The program of a test is large; how well it compresses is not the question.
    succeed(command("dpkg-deb").args(["-Znone", "--root-owner-group", "--build"]).arg(&tree).arg(&package));
    succeed(command("dpkg-deb").arg("--extract").arg(&package).arg(&root));
    let program = Program::new(root.join("usr/bin/stargate"));
    assert!(program.answer(&["--version"]).starts_with("stargate "));
    std::fs::copy(root.join("etc/stargate/stargate.toml"), program.home().join("stargate.toml")).unwrap();
    accepted(&program);
    for unit in ["stargate.service", "stargate-worker.service"] {
        let unit = std::fs::read_to_string(root.join("usr/lib/systemd/system").join(unit)).unwrap();
        assert!(unit.contains("ExecStart=/usr/bin/stargate "), "{unit}");
    }
}

#[test]
fn systemd_understands_the_units_and_finds_them_closed() {
    let place = tempfile::tempdir().unwrap();
    for unit in ["stargate.service", "stargate-worker.service"] {
        // It looks whether the program is there.
        let text = text_of(&format!("deploy/systemd/{unit}")).replace("/usr/bin/stargate", "/bin/true");
        std::fs::write(place.path().join(unit), text).unwrap();
        let verified = command("systemd-analyze").arg("verify").arg(place.path().join(unit)).output();
        let Ok(verified) = verified else { panic!("systemd-analyze is missing: apt-get install systemd") };
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(!said.contains(unit), "{said}");
        let judged = succeed(
            command("systemd-analyze")
                .args(["security", "--offline=true", "--threshold=25"])
                .arg(place.path().join(unit)),
        );
        let judged = String::from_utf8_lossy(&judged.stdout).into_owned();
        assert!(judged.contains("Overall exposure level"), "{judged}");
    }
}
