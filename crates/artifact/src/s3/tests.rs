//! What the server must do for two attempts not to get in each other's way.

use object_store::multipart::MultipartStore as _;
use stargate_testkit::s3::Corner;

use super::upload::Upload;
use super::*;
use crate::permit::Permission;
use crate::{Permit, Publisher, Unobserved};

fn open() -> S3 {
    let corner = Corner::create();
    let settings = Settings {
        bucket: corner.bucket,
        prefix: corner.prefix,
        endpoint: Some(corner.endpoint),
        region: "us-east-1".to_owned(),
        access_key_id: Some(corner.access_key),
        secret_access_key: Some(Secret::new(corner.secret_key)),
        session_token: None,
    };
    S3::new(&settings, Tasks::new()).unwrap()
}

struct Yes;

#[async_trait]
impl Permit for Yes {
    async fn holds(&self) -> bool {
        true
    }
}

const BY: Publisher<'_> = Publisher { attempt: "17-1", permit: &Yes, about: None, steps: &Unobserved };

fn file(size: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![7; usize::try_from(size).unwrap()]).unwrap();
    file
}

#[tokio::test]
async fn an_object_appears_only_if_its_condition_holds() {
    let s3 = open();
    for size in [1000, PART + 1] {
        let (path, file) = (s3.path(&size.to_string()), file(size));
        let mut upload = Upload::begin(&s3, path.clone(), file.path(), &BY).await.unwrap();
        upload.send(&Unobserved).await.unwrap();
        assert!(
            matches!(s3.store.head(&path).await, Err(object_store::Error::NotFound { .. })),
            "nothing yet"
        );

        s3.store.put(&path, PutPayload::from_static(b"another")).await.unwrap();
        let other = s3.store.head(&path).await.unwrap();
        let conditions =
            [Condition::Absent, Condition::Unchanged("\"00000000000000000000000000000000\"".to_owned())];
        for condition in conditions {
            let refused = upload.complete(condition, Permission::given_now()).await.unwrap_err();
            let expected = matches!(
                refused,
                object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }
            );
            assert!(expected, "{size} bytes: {refused:?}");
            assert_eq!(s3.store.head(&path).await.unwrap().e_tag, other.e_tag);
        }
        let unchanged = Condition::Unchanged(other.e_tag.unwrap());
        upload.complete(unchanged, Permission::given_now()).await.unwrap();
        let there = s3.store.get(&path).await.unwrap();
        assert_eq!(there.attributes.get(&META_ATTEMPT).map(AsRef::as_ref), Some("17-1"));
        assert_eq!(there.meta.size, size);
    }
}

#[tokio::test]
async fn nothing_is_asked_of_the_server_once_the_permission_is_old() {
    let s3 = open();
    for size in [1000, PART + 1] {
        let (path, file) = (s3.path(&size.to_string()), file(size));
        let mut upload = Upload::begin(&s3, path.clone(), file.path(), &BY).await.unwrap();
        upload.send(&Unobserved).await.unwrap();
        let permission = Permission::given_now();
        while permission.is_fresh() {
            tokio::task::yield_now().await;
        }
        let expired = upload.complete(Condition::Absent, permission).await.unwrap_err();
        assert!(is_expired(&expired), "{expired:?}");
        assert!(matches!(s3.store.head(&path).await, Err(object_store::Error::NotFound { .. })));
        upload.complete(Condition::Absent, Permission::given_now()).await.unwrap();
        assert_eq!(s3.store.head(&path).await.unwrap().size, size);
    }
}

#[tokio::test]
async fn an_upload_that_is_dropped_is_aborted() {
    let s3 = open();
    let (path, file) = (s3.path("clip.mp4"), file(PART + 1));
    let mut upload = Upload::begin(&s3, path.clone(), file.path(), &BY).await.unwrap();
    upload.send(&Unobserved).await.unwrap();
    let id = upload.id().unwrap();
    s3.store.put_part(&path, &id, 7, PutPayload::from_static(b"x")).await.unwrap();
    drop(upload);
    s3.tasks.join().await;
    assert!(s3.store.put_part(&path, &id, 8, PutPayload::from_static(b"x")).await.is_err(), "it is gone");
}
