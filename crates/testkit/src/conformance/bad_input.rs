//! What is refused, by field, and what is odd but good.

use super::prelude::*;

fn with_payload(text: String) -> NewJob {
    NewJob::new(WORK, RawValue::from_string(text).expect("the case writes good JSON"))
}

pub async fn each_bad_field_is_refused_by_name(f: &Fixture) {
    let bad = [
        ("kind", NewJob { kind: "no spaces".into(), ..job() }),
        ("kind", NewJob { kind: String::new(), ..job() }),
        ("queue", NewJob { queue: "q'; drop table job; --".into(), ..job() }),
        ("queue", NewJob { queue: "x".repeat(101), ..job() }),
        ("priority", NewJob { priority: -1, ..job() }),
        ("priority", NewJob { priority: 10_000, ..job() }),
        ("max_attempts", NewJob { max_attempts: Some(0), ..job() }),
        ("max_attempts", NewJob { max_attempts: Some(1001), ..job() }),
        ("unique_key", NewJob { unique_key: Some(String::new()), ..job() }),
        ("unique_key", NewJob { unique_key: Some("a\0b".into()), ..job() }),
        ("limit_key", NewJob { limit_key: Some("x".repeat(256)), ..job() }),
        ("trace_id", NewJob { trace_id: Some(String::new()), ..job() }),
        ("after", NewJob { after: vec![JobId(1); 1001], ..job() }),
        ("run_at", NewJob { due: Due::In(Duration::from_secs(20 * 366 * 86_400)), ..job() }),
        ("payload", with_payload(r#""a\u0000b""#.into())),
    ];
    for (field, new) in bad {
        let error = f.store.enqueue(vec![new]).await.expect_err(field);
        assert_eq!(error.class(), ErrorClass::ValidationFailure, "{field}: {error}");
        assert!(error.to_string().starts_with(field), "the error names {field}: {error}");
    }
    assert_eq!(f.store.depth(10).await.unwrap(), 0, "none was accepted");
}

pub async fn a_payload_of_one_mebibyte_is_accepted(f: &Fixture) {
    let text = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2));
    let id = f.enqueue(with_payload(text.clone())).await;
    assert!(f.job(id).await.payload.get() == text, "it reads back whole");
    let worker = f.worker("w").await;
    let claimed = f.claim_one(worker).await;
    assert!(claimed.payload.get() == text, "and is handed out whole");
}

pub async fn a_payload_of_one_byte_more_is_refused(f: &Fixture) {
    let text = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 1));
    let error = f.store.enqueue(vec![with_payload(text)]).await.unwrap_err();
    assert_eq!(error.code(), "PAYLOAD_TOO_LARGE", "{error}");
    assert_eq!(f.store.depth(10).await.unwrap(), 0, "it was not accepted");
}

pub async fn large_numbers_survive_with_their_value(f: &Fixture) {
    for number in
        ["9223372036854775808", "123456789012345678901234567890", "0.1234567890123456789012345", "-0.5"]
    {
        let id = f.enqueue(with_payload(format!("{{\"n\":{number}}}"))).await;
        let worker = f.worker("w").await;
        let claimed = f.claim_one(worker).await;
        for (place, json) in [("the claim", &claimed.payload), ("the job", &f.job(id).await.payload)] {
            assert!(json.get().contains(number), "{number} in {place} reads {}", json.get());
        }
        let result = Some(claimed.payload.clone());
        f.accept(claimed.fence, Outcome::Done { result }).await;
        let result = f.job(id).await.result.expect("a result");
        assert!(result.get().contains(number), "{number} in the result reads {}", result.get());
    }
}

pub async fn every_shape_of_json_survives(f: &Fixture) {
    let worker = f.worker("w").await;
    for text in ["null", "true", "0", "\"\"", "[]", "{}", "[null]", r#"{"a":{"b":[1,"2",false,null]}}"#] {
        let id = f.enqueue(with_payload(text.into())).await;
        let expected: Value = serde_json::from_str(text).unwrap();
        assert_eq!(value(&f.job(id).await.payload), expected, "payload {text}");
        let claimed = f.claim_one(worker).await;
        let result = Some(RawValue::from_string(text.into()).unwrap());
        f.accept(claimed.fence, Outcome::Done { result }).await;
        let job = f.job(id).await;
        assert_eq!(job.result.as_ref().map(value), Some(expected), "result {text}");
    }
}

pub async fn unicode_survives_everywhere(f: &Fixture) {
    let text = "Grüße, 世界 🌍 \u{301} \u{200b} \\u0000 ' \" \\ %s $1 ?";
    let new = NewJob {
        unique_key: Some(text.into()),
        limit_key: Some(text.into()),
        trace_id: Some(text.into()),
        ..NewJob::of(WORK, &json!({ text: text })).unwrap()
    };
    let id = f.enqueue(new).await;
    let job = f.job(id).await;
    assert_eq!(value(&job.payload), json!({ text: text }));
    for (field, got) in [("unique", job.unique_key), ("limit", job.limit_key), ("trace", job.trace_id)] {
        assert_eq!(got.as_deref(), Some(text), "{field}");
    }
    let worker = f.worker(text).await;
    let claimed = f.claim_one(worker).await;
    let error = JobError::new("CODE", ErrorClass::Fatal, text);
    f.accept(claimed.fence, Outcome::Failed { error: error.clone() }).await;
    let job = f.job(id).await;
    assert_eq!((job.error, job.worker.as_deref()), (Some(error), Some(text)));
}

pub async fn keys_that_differ_only_in_case_or_accent_are_different(f: &Fixture) {
    let mut all = HashSet::new();
    for key in ["key", "KEY", "kéy", "ke\u{301}y", "key ", "k%y", "k_y"] {
        all.insert(f.enqueue(NewJob { unique_key: Some(key.into()), ..job() }).await);
    }
    assert_eq!(all.len(), 7, "seven keys, seven jobs");
}

pub async fn a_batch_of_one_thousand_parents_is_accepted(f: &Fixture) {
    let parents = f.enqueue_all(vec![job(); 1000]).await;
    let child = f.enqueue(NewJob { after: parents, ..job() }).await;
    assert_eq!(f.store.parents(child).await.unwrap().len(), 1000);
    assert_eq!(f.job(child).await.stage, Some(Stage::Blocked));
}
