//! One producer that awaits each enqueue of one job, beside the raw client's single insert.
//!
//! Both write one job in a transaction of its own, with the notification that wakes a worker, and have it on the disk when the
//! call returns. Nobody works meanwhile.

use anyhow::Result;
use stargate_base::Tasks;

use crate::report::{Goal, line, median};
use crate::throughput::fresh_database;
use crate::{noop, raw};

const ROUNDS: usize = 5;
/// In one round of one of the two: a fifth of a second.
const JOBS: usize = 500;
/// Connections and plans are made in the first ones.
const WARM_UP: usize = 20;

/// Jobs per second.
struct Round {
    ours: f64,
    raw: f64,
}

/// As the requests of a server are: from the thread of `main` every answer would have to wake another one.
async fn in_a_task(measured: impl Future<Output = Result<f64>> + Send + 'static) -> Result<f64> {
    Tasks::new().spawn(measured).await?
}

/// On a database of its own, as the jobs stay where they are.
pub(crate) async fn beside_raw(server: &str) -> Result<()> {
    let url = fresh_database(server).await?;
    raw::prepare(&url).await?;
    let store = noop::open(&url).await?;
    store.kinds_register(noop::registry(|_| ())?.specs()).await?;
    let ours = async || {
        let store = store.clone();
        in_a_task(async move { noop::enqueue_awaited(&store, WARM_UP, JOBS).await }).await
    };
    let raw = async || {
        let url = url.clone();
        in_a_task(async move { raw::enqueue_awaited(&url, WARM_UP, JOBS).await }).await
    };
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        // Whoever comes first finds the disk as the round before left it; that is the other one each time.
        rounds.push(if round % 2 == 0 {
            let raw = raw().await?;
            Round { ours: ours().await?, raw }
        } else {
            let ours = ours().await?;
            Round { ours, raw: raw().await? }
        });
    }
    let of = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    line("raw client: enqueue, one awaited at a time", of(|round| round.raw), "jobs/s", &Goal::None);
    line("enqueue, one awaited at a time", of(|round| round.ours), "jobs/s", &Goal::None);
    let ratio = of(|round| round.ours / round.raw);
    line("enqueue / raw enqueue, median of pairs", ratio, "", &Goal::AtLeast(1.0));
    Ok(())
}
