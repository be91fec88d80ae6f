//! What pg-boss keeps as a job's output, in the shapes its own workers write.

use serde_json::json;
use stargate_queue::JobError;

/// A result: objects as they are, anything else as `{"value": …}`.
pub(super) fn of_result(result: Option<&str>) -> Option<String> {
    let result = result?.trim();
    match result {
        "null" => None,
        object if object.starts_with('{') => Some(object.to_owned()),
        other => Some(format!("{{\"value\":{other}}}")),
    }
}

/// An error, as a thrown `Error` would look, with our code and class beside the message.
pub(super) fn of_error(error: &JobError, attempts: u16) -> Option<String> {
    // Postgres keeps no NUL in a text.
    let clean = |text: &str| text.replace('\0', "");
    let mut output = json!({
        "name": "JobError",
        "message": clean(&error.message),
        "code": clean(&error.code),
        "class": error.class.as_str(),
        "attempts": attempts,
    });
    if let Some(detail) = &error.detail {
        output["detail"] = clean(detail).into();
    }
    Some(output.to_string())
}

#[cfg(test)]
mod tests {
    use stargate_base::ErrorClass;

    use super::*;

    #[test]
    fn results_have_the_shape_that_pg_boss_gives_them() {
        assert_eq!(of_result(None), None);
        assert_eq!(of_result(Some("null")), None);
        assert_eq!(of_result(Some(r#" {"a":1}"#)).unwrap(), r#"{"a":1}"#);
        assert_eq!(of_result(Some("[1]")).unwrap(), r#"{"value":[1]}"#);
        assert_eq!(of_result(Some("\"text\"")).unwrap(), r#"{"value":"text"}"#);
    }

    #[test]
    fn an_error_has_code_class_and_message_and_nothing_that_postgres_refuses() {
        let mut error = JobError::new("BROKEN", ErrorClass::Fatal, "no\0thing");
        error.detail = Some("more".into());
        let output: serde_json::Value = serde_json::from_str(&of_error(&error, 2).unwrap()).unwrap();
        assert_eq!(output["message"], "nothing");
        assert_eq!((&output["code"], &output["class"]), (&json!("BROKEN"), &json!("Fatal")));
        assert_eq!((&output["detail"], &output["attempts"]), (&json!("more"), &json!(2)));
    }
}
