//! Values of TOML as JSON.

use serde_json::Value as Json;

/// The same value. A date is its text; JSON has no other form for it. What JSON has not is refused.
pub(super) fn json(value: &toml::Value) -> Result<Json, String> {
    Ok(match value {
        toml::Value::String(text) => Json::String(text.clone()),
        toml::Value::Integer(number) => Json::from(*number),
        toml::Value::Float(number) => serde_json::Number::from_f64(*number)
            .map(Json::Number)
            .ok_or_else(|| format!("{number} is no number that JSON has"))?,
        toml::Value::Boolean(bool) => Json::Bool(*bool),
        toml::Value::Datetime(time) => Json::String(time.to_string()),
        toml::Value::Array(array) => Json::Array(array.iter().map(json).collect::<Result<_, _>>()?),
        toml::Value::Table(table) => {
            let entry = |(key, value): (&String, &toml::Value)| Ok((key.clone(), json(value)?));
            Json::Object(table.iter().map(entry).collect::<Result<_, String>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_text_and_what_json_has_not_is_refused() {
        let table: toml::Value =
            "a = 2026-01-02\nb = [1, 2.5, { c = true }]\n".parse::<toml::Table>().unwrap().into();
        assert_eq!(
            json(&table).unwrap(),
            serde_json::json!({ "a": "2026-01-02", "b": [1, 2.5, { "c": true }] })
        );
        assert!(json(&toml::Value::Float(f64::NAN)).is_err());
    }
}
