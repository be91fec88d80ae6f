//! Whether a Redis keeps the leader lock: persistence, eviction, replicas.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, RedisResult, TlsCertificates};
use stargate_leader::redis::Replicas;

use super::super::Check;
use crate::candidate;
use crate::config::leader::Redis;

/// A server that needs longer is as good as unreachable.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was asked of a Redis.
#[derive(Debug, Default, PartialEq, Eq)]
struct Facts {
    /// Absent where the account may not ask.
    append_only: Option<String>,
    save: Option<String>,
    policy: Option<String>,
    memory_max: Option<String>,
    role: String,
    replicas_online: usize,
}

/// Every check.
pub(super) async fn checks(redis: &Redis) -> Vec<Check> {
    match tokio::time::timeout(PATIENCE, ask(redis)).await {
        Ok(Ok(facts)) => vec![persistence(&facts), eviction(&facts), replicas(&facts, redis.replicas)],
        Ok(Err(problem)) => vec![Check::warn("redis", problem, "see the check of the leader lock")],
        Err(_) => {
            vec![Check::warn("redis", format!("no answer in {} s", PATIENCE.as_secs()), "look at its load")]
        }
    }
}

async fn ask(redis: &Redis) -> Result<Facts, String> {
    let settings = candidate::redis_settings(redis).map_err(|failure| failure.message)?;
    let url = settings.url.reveal();
    // An error of the driver could quote the URL, and with it the password (INV-8).
    let client = match settings.authority {
        None => Client::open(url),
        Some(root) => {
            Client::build_with_tls(url, TlsCertificates { client_tls: None, root_cert: Some(root) })
        }
    };
    let client = client.map_err(|_| "leader.redis_url cannot be read".to_owned())?;
    let place = client.get_connection_info().addr().to_string();
    facts(&client).await.map_err(|error| format!("cannot ask the Redis at {place}: {error}"))
}

async fn facts(client: &Client) -> RedisResult<Facts> {
    let mut connection = client.get_multiplexed_async_connection().await?;
    let info: String = redis::cmd("INFO").arg("replication").query_async(&mut connection).await?;
    let online = |line: &&str| line.starts_with("slave") && line.contains("state=online");
    Ok(Facts {
        append_only: setting(&mut connection, "appendonly").await,
        save: setting(&mut connection, "save").await,
        policy: setting(&mut connection, "maxmemory-policy").await,
        memory_max: setting(&mut connection, "maxmemory").await,
        role: info.lines().find_map(|line| line.trim_end().strip_prefix("role:")).unwrap_or("?").to_owned(),
        replicas_online: info.lines().filter(online).count(),
    })
}

/// Managed servers often refuse `CONFIG`; then nobody can say.
async fn setting(connection: &mut MultiplexedConnection, name: &str) -> Option<String> {
    let pair: RedisResult<Vec<String>> =
        redis::cmd("CONFIG").arg("GET").arg(name).query_async(connection).await;
    pair.ok().and_then(|pair| pair.into_iter().nth(1))
}

/// A Redis that forgets the lock costs a time to live without leader; the store's epoch keeps it safe all the same.
fn persistence(facts: &Facts) -> Check {
    let remedy = "set 'appendonly yes' on Redis: after a restart it then still knows who leads";
    match (facts.append_only.as_deref(), facts.save.as_deref()) {
        (Some("yes"), _) => Check::ok("redis persistence", "appendonly yes"),
        (_, Some(save)) if !save.is_empty() => {
            Check::warn("redis persistence", format!("snapshots only (save {save})"), remedy)
        }
        (Some(_), _) => Check::warn("redis persistence", "none", remedy),
        (None, _) => Check::warn("redis persistence", "this account may not ask (CONFIG GET)", remedy),
    }
}

fn eviction(facts: &Facts) -> Check {
    let Some(policy) = facts.policy.as_deref() else {
        let remedy = "make sure that 'maxmemory-policy' is noeviction";
        return Check::warn("redis eviction", "this account may not ask (CONFIG GET)", remedy);
    };
    let unlimited = facts.memory_max.as_deref() == Some("0");
    match policy {
        "noeviction" => Check::ok("redis eviction", "noeviction"),
        _ if unlimited => Check::ok("redis eviction", format!("{policy}, but maxmemory has no limit")),
        // Each of the others may throw out a key that has a time to live, as the lock has.
        _ => Check::fail(
            "redis eviction",
            format!("{policy}: when memory is short, the leader lock may be thrown out"),
            "set 'maxmemory-policy noeviction', or use a Redis of its own for the lock",
        ),
    }
}

fn replicas(facts: &Facts, wanted: Replicas) -> Check {
    let online = facts.replicas_online;
    if facts.role != "master" {
        return Check::fail(
            "redis replicas",
            format!("this is a {}, which takes no lock", facts.role),
            "name the primary with leader.redis_url (REDIS_URL)",
        );
    }
    match wanted {
        Replicas::Exactly(wanted) if online < wanted => Check::fail(
            "redis replicas",
            format!("{online} online, leader.replicas asks for {wanted}: nobody can lead"),
            "mend the replicas, or lower leader.replicas",
        ),
        Replicas::Exactly(wanted) => {
            Check::ok("redis replicas", format!("{online} online, {wanted} asked for"))
        }
        Replicas::Connected if online > 0 => Check::warn(
            "redis replicas",
            format!("{online} online, leader.replicas is \"connected\""),
            format!(
                "set leader.replicas = {online}: a primary that was cut off from its replicas then grants nothing"
            ),
        ),
        Replicas::Connected => Check::ok("redis replicas", "none"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::*;

    fn facts() -> Facts {
        Facts { role: "master".to_owned(), ..Facts::default() }
    }

    fn of(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_policy_that_evicts_keys_with_an_expiry_fails_where_memory_has_a_limit() {
        let with = |policy: &str, max: &str| {
            eviction(&Facts { policy: of(policy), memory_max: of(max), ..facts() }).verdict
        };
        assert_eq!(with("noeviction", "100"), Verdict::Ok);
        assert_eq!(with("allkeys-lru", "0"), Verdict::Ok);
        assert_eq!(with("volatile-ttl", "100"), Verdict::Fail);
        assert_eq!(with("allkeys-lru", "100"), Verdict::Fail);
        assert_eq!(eviction(&facts()).verdict, Verdict::Warn);
    }

    #[test]
    fn a_redis_that_forgets_is_a_warning() {
        let with = |aof: &str, save: &str| {
            persistence(&Facts { append_only: of(aof), save: of(save), ..facts() }).verdict
        };
        assert_eq!(with("yes", ""), Verdict::Ok);
        assert_eq!(with("no", "3600 1"), Verdict::Warn);
        assert_eq!(with("no", ""), Verdict::Warn);
        assert_eq!(persistence(&facts()).verdict, Verdict::Warn);
    }

    #[test]
    fn too_few_replicas_and_the_wrong_server_fail() {
        let with =
            |online: usize, wanted| replicas(&Facts { replicas_online: online, ..facts() }, wanted).verdict;
        assert_eq!(with(0, Replicas::Connected), Verdict::Ok);
        assert_eq!(with(1, Replicas::Connected), Verdict::Warn);
        assert_eq!(with(1, Replicas::Exactly(2)), Verdict::Fail);
        assert_eq!(with(2, Replicas::Exactly(2)), Verdict::Ok);
        let replica = Facts { role: "slave".to_owned(), ..facts() };
        assert_eq!(replicas(&replica, Replicas::Connected).verdict, Verdict::Fail);
    }
}
