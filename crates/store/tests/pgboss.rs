//! Jobs that a real application sends with pg-boss are run here, once, whatever dies on the way: on both stores, with
//! pg-boss's own maintenance beside us every second.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

#[path = "pgboss/basics.rs"]
mod basics;
#[path = "pgboss/crash.rs"]
mod crash;
#[path = "../../queue/tests/faulty.rs"]
mod faulty;
#[path = "pgboss/policy.rs"]
mod policy;
#[path = "pgboss/schema.rs"]
mod schema;
#[path = "pgboss/stage.rs"]
mod stage;
