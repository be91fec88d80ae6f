//! A server that has a public address and sends the worker to an address inside: a network namespace of the test's own, in
//! which the loopback interface has a public address as well.

use serde_json::{Value, json};
use stargate_queue::State;
use stargate_testkit::eventually;
use stargate_testkit::process::{Program, Running};

use crate::stage::Stage;
use crate::{PATIENCE, processes, video};

/// An address that belongs to the public Internet; in the namespace it is this machine.
const PUBLIC: &str = "93.184.215.14";
const PORT: u16 = 8099;

/// Perl is part of every Debian. The path asked for says where to send the client: `/to/HOST/REST`; anything else is the
/// video. Each request is a line of the log.
const SERVER: &str = r#"
use IO::Socket::INET;
my ($port, $file) = @ARGV;
my $server = IO::Socket::INET->new(LocalAddr => "0.0.0.0:$port", Listen => 16, ReuseAddr => 1) or die "listen: $!";
$| = 1;
print "listening\n";
while (my $client = $server->accept) {
    my $request = <$client>;
    while (my $line = <$client>) { last if $line eq "\r\n" }
    my ($path) = $request =~ m{^GET (\S+)};
    print "asked ", $client->sockhost, " $path\n";
    if ($path =~ m{^/to/([^/]+)(/.*)}) {
        print $client "HTTP/1.1 302 Found\r\nLocation: http://$1:$port$2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    } else {
        open(my $video, "<:raw", $file) or die "open: $!";
        print $client "HTTP/1.1 200 OK\r\nContent-Length: ", -s $file, "\r\nConnection: close\r\n\r\n";
        while (read($video, my $bytes, 65536)) { print $client $bytes }
    }
    close $client;
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_an_address_inside_is_refused() {
    let stage = Stage::sqlite("").await;
    let network = Network::start().await;
    let worker = network.worker(&stage);
    let cut = |path: &str| -> Value {
        json!({ "source": format!("http://{PUBLIC}:{PORT}{path}"), "start": 0.5, "end": 1.5 })
    };
    // What is public is fetched, also after a redirect.
    for path in ["/video".to_owned(), format!("/to/{PUBLIC}/video")] {
        let id = stage.enqueue("clip", &cut(&path));
        stage.ends(id, State::Done).await;
        stage.check_artifact(id, 1.0).await;
    }
    let inside = ["127.0.0.1", "localhost", "[::1]", "2130706433", "169.254.169.254", "[::ffff:127.0.0.1]"];
    for host in inside {
        // The second is a redirect to a redirect.
        for path in [format!("/to/{host}/inside"), format!("/to/{PUBLIC}/to/{host}/inside")] {
            let id = stage.enqueue("clip", &cut(&path));
            let job = stage.ends(id, State::Failed).await;
            let error = job.error.as_ref().expect("a failed job says why");
            assert_eq!(
                (error.code.as_str(), job.attempt_count),
                ("SSRF_BLOCKED", 1),
                "{path}: {error:?}; {}",
                worker.log()
            );
            assert_eq!(stage.result_names(id), [""; 0], "{path}");
        }
    }
    let log = network.server.log();
    assert!(!log.lines().any(|line| line.ends_with(" /inside")), "an address inside was asked:\n{log}");
    assert!(log.lines().filter(|line| line.starts_with("asked")).all(|line| line.contains(PUBLIC)), "{log}");
    processes::all_gone(stage.home()).await;
    drop(worker);
    stage.close().await;
}

/// A network without anybody else.
struct Network {
    holder: Running,
    server: Running,
    enter: Program,
    _unshare: Program,
}

impl Network {
    async fn start() -> Self {
        let unshare = Program::new("unshare");
        // Root needs no user namespace, others cannot make a network without one.
        let new = if rustix::process::geteuid().is_root() { "-n" } else { "-rn" };
        let set_up =
            format!("ip link set lo up && ip address add {PUBLIC}/32 dev lo && echo up && exec sleep 3600");
        let holder = unshare.start(&[new, "sh", "-c", &set_up]);
        says(&holder, "up").await;
        let enter = Program::new("nsenter");
        let (port, file) = (PORT.to_string(), video::plain());
        let perl = ["perl", "-e", SERVER, &port, file.to_str().unwrap()];
        let server = enter.start(&inside(&holder.id().to_string(), &perl));
        says(&server, "listening").await;
        Self { holder, server, enter, _unshare: unshare }
    }

    /// A worker in this network. Whether it is ready cannot be asked from outside.
    fn worker(&self, stage: &Stage) -> Running {
        let config = stage.home().join("stargate.toml");
        let command = [env!("CARGO_BIN_EXE_stargate"), "--config", config.to_str().unwrap(), "worker"];
        let home = stage.home().display().to_string();
        self.enter.start_with(&inside(&self.holder.id().to_string(), &command), &[("STARGATE_HOME", &home)])
    }
}

/// The arguments of `nsenter` that run something in the network of a process.
fn inside<'a>(holder: &'a str, command: &[&'a str]) -> Vec<&'a str> {
    let enter: &[&str] = if rustix::process::geteuid().is_root() {
        &["-n"]
    } else {
        &["--user", "--preserve-credentials", "-n"]
    };
    [&["-t", holder], enter, &["--"], command].concat()
}

async fn says(running: &Running, word: &str) {
    eventually(PATIENCE, word, || {
        let log = running.log();
        async move { if log.lines().any(|line| line == word) { Ok(()) } else { Err(log) } }
    })
    .await;
}
