//! Waiting for something that another process or thread will do.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long to wait between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Asks again and again until the answer is `Ok`, and fails with the last `Err` when the deadline has passed.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
/// let mut looks = 0;
/// let found = stargate_testkit::eventually(Duration::from_secs(5), "the third look", || {
///     looks += 1;
///     let now = looks;
///     async move { if now < 3 { Err(format!("only look {now}")) } else { Ok(now) } }
/// })
/// .await;
/// assert_eq!(found, 3);
/// # });
/// ```
pub async fn eventually<T, F, Fut>(deadline: Duration, what: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let begin = Instant::now();
    let mut looks = 0_u32;
    loop {
        looks += 1;
        match look().await {
            Ok(found) => return found,
            Err(last) if begin.elapsed() >= deadline => {
                panic!("waited {deadline:?} in vain for {what} ({looks} looks); last: {last}")
            }
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}
