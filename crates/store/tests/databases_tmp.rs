//! Temporary.
use stargate_base::Secret;
use stargate_directive::source::Databases as _;
use stargate_store::databases::{Drivers, Own};
use stargate_testkit::postgres::Database;

fn hwm() -> String {
    let s = std::fs::read_to_string("/proc/self/status").unwrap();
    s.lines().filter(|l| l.starts_with("VmHWM") || l.starts_with("VmRSS")).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn measure() {
    let d = Database::create_empty().await;
    d.client().await.batch_execute("create table item (id integer, w integer, x text);
      insert into item select n, n, repeat('x', 1048576) from generate_series(1, 500) n;
      create table small as select n as id, n as w, repeat('x', 200) as x from generate_series(1, 100000) n;
      create index on small (w); analyze small").await.unwrap();
    let f = tempfile::tempdir().unwrap();
    let drivers = Drivers::new(Own::Postgres { url: Secret::new(d.url()), pooled: false }, f.path());
    println!("before {}", hwm());
    let t = std::time::Instant::now();
    let mut feed = drivers.feed(None, "select * from item", "w", &serde_json::Value::Null).await.unwrap();
    let page = feed.page(500).await.unwrap();
    println!("page {} {:?}", hwm(), t.elapsed());
    let n: usize = page.records.map(|r| r.unwrap().unwrap().get().len()).sum();
    println!("read {} {n} bytes {:?}", hwm(), t.elapsed());
    feed.close().await;
    let t = std::time::Instant::now();
    let mut feed = drivers.feed(None, "select * from small", "w", &serde_json::Value::Null).await.unwrap();
    let mut n = 0;
    loop { let p = feed.page(500).await.unwrap(); let l = p.is_last; n += p.records.count(); if l { break } }
    println!("small {n} rows {:?} {}", t.elapsed(), hwm());
    feed.close().await;
    d.remove().await;
}
