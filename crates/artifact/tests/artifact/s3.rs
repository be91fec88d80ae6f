//! What only a server can do: refuse, be away, and hold sources.

use stargate_artifact::s3::{Settings, Sources};
use stargate_artifact::{Artifacts as _, Error, Found, Key, S3};
use stargate_base::{ErrorClass, Secret, Tasks};
use stargate_testkit::s3::Corner;

use crate::fixture::{Fixture, LARGE, Place, SMALL, content, settings};

fn corner(f: &Fixture) -> Corner {
    let Place::S3(corner) = &f.place else { panic!("a server") };
    corner.clone()
}

#[tokio::test]
async fn a_wrong_key_is_denied_and_its_secret_is_not_told() {
    let f = Fixture::s3();
    let wrong = Settings { secret_access_key: Some(Secret::new("not-the-secret")), ..settings(&corner(&f)) };
    let store = S3::new(&wrong, Tasks::new()).unwrap();
    let error = store.find(&f.key).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    assert_eq!(error.class(), ErrorClass::RetryableTransient);
    assert!(error.to_string().contains("results/17/clip.mp4"), "{error}");
    let told = format!("{error:?} {wrong:?} {store:?}");
    assert!(!told.contains("not-the-secret"), "{told}");
}

#[tokio::test]
async fn half_a_key_or_a_strange_prefix_is_refused() {
    let corner = Corner::create();
    let half = Settings { secret_access_key: None, ..settings(&corner) };
    let strange = Settings { prefix: "a/../b".to_owned(), ..settings(&corner) };
    for wrong in [half, strange] {
        let error = S3::new(&wrong, Tasks::new()).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Fatal, "{error}");
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_trouble_for_now_within_bounded_time() {
    // A port that was free a moment ago, and that nobody listens at.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let away = Settings { endpoint: Some(format!("http://127.0.0.1:{port}")), ..settings(&Corner::create()) };
    let store = S3::new(&away, Tasks::new()).unwrap();
    let error = store.find(&Key::result(17, "clip.mp4").unwrap()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::RetryableTransient, "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Sources::new(away).download("s3://videos/a.mp4", file.path(), 1).await.unwrap_err();
    assert!(matches!(error, Error::SourceUnavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn sources_are_fetched_within_their_limit() {
    let f = Fixture::s3();
    let corner = corner(&f);
    let sources = Sources::new(settings(&corner));
    let to = f.home.path().join("source");
    for size in [0, SMALL, LARGE] {
        f.place.write("videos/a b+ü.mp4", &content(5, size)).await;
        let address = format!("{}/videos/a b+ü.mp4", corner.url());
        assert_eq!(sources.download(&address, &to, LARGE as u64).await.unwrap(), size as u64);
        assert!(std::fs::read(&to).unwrap() == content(5, size));
    }
    let address = format!("{}/videos/a b+ü.mp4", corner.url());
    let error = sources.download(&address, &to, LARGE as u64 - 1).await.unwrap_err();
    assert!(matches!(error, Error::SourceTooLarge { bytes, .. } if bytes == LARGE as u64), "{error:?}");
    assert_eq!(error.class(), ErrorClass::ValidationFailure);
}

#[tokio::test]
async fn a_source_that_is_missing_or_denied_is_told_apart() {
    let corner = Corner::create();
    let to = tempfile::NamedTempFile::new().unwrap();
    let sources = Sources::new(settings(&corner));
    for address in [format!("{}/nothing", corner.url()), format!("s3://{}/a", corner.prefix)] {
        let error = sources.download(&address, to.path(), 1).await.unwrap_err();
        assert!(matches!(error, Error::SourceMissing { .. }), "{error:?}");
    }
    let wrong = Settings { secret_access_key: Some(Secret::new("not-the-secret")), ..settings(&corner) };
    let error = Sources::new(wrong).download(&corner.url(), to.path(), 1).await.unwrap_err();
    assert!(matches!(error, Error::SourceDenied { .. }), "{error:?}");
    let error = sources.download("s3://x", to.path(), 1).await.unwrap_err();
    assert!(matches!(error, Error::SourceAddress { .. }), "{error:?}");
}

#[tokio::test]
async fn an_artifact_without_its_manifest_is_described_not_replaced() {
    let f = Fixture::s3();
    f.publish("17-1", &f.file(1, SMALL)).await.unwrap();
    let Found::Valid(first) = f.store.find(&f.key).await.unwrap() else { panic!("a valid artifact") };
    f.place.remove(&f.key.manifest()).await;
    let second = f.publish("17-2", &f.file(2, SMALL)).await.unwrap();
    assert_eq!(second, stargate_artifact::Published::Adopted(first.clone()));
    f.place.remove(&f.key.manifest()).await;
    assert_eq!(f.store.find(&f.key).await.unwrap(), Found::Valid(first), "a look is enough");
    assert!(f.place.read(&f.key.manifest()).await.is_some());
}
