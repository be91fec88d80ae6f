//! The settings of the API's and the page's behaviour.

use std::num::NonZeroU32;

use stargate_queue::limits::Rate;
use stargate_web::RateLimit;

use super::{any, read_list, read_switch, read_text};
use crate::config::layer::Setting;

/// The longest sub-path.
const BASE_PATH_MAX: usize = 200;

pub(in crate::config) const READ_ONLY: Setting<bool> = Setting {
    key: "api.read_only",
    about: "Refuse every change over HTTP with `READ_ONLY`, whoever asks. Pushes over git are not concerned.",
    default: "false",
    flag: "",
    env: &["STARGATE_READ_ONLY"],
    read: read_switch,
    check: any,
    show: ToString::to_string,
};
pub(in crate::config) const RATE_LIMIT: Setting<Option<RateLimit>> = Setting {
    key: "api.rate_limit",
    about: "Changes over HTTP that one token may ask for: `100/s`, `1000/m`, or `off`. Twice as many at once after a quiet time. Nobody is limited where no token is needed.",
    default: "`100/s`",
    flag: "",
    env: &["STARGATE_RATE_LIMIT"],
    read: read_rate_limit,
    check: any,
    show: show_rate_limit,
};
pub(in crate::config) const BASE_PATH: Setting<String> = Setting {
    key: "web.base_path",
    about: "Where page and API are below the root of a site, such as `/stargate`, behind a proxy. They answer at the root as well.",
    default: "the root",
    flag: "",
    env: &["STARGATE_BASE_PATH"],
    read: read_text,
    check: |path| check_base_path(path),
    show: |path| if path.is_empty() { "the root".to_owned() } else { path.clone() },
};
pub(in crate::config) const REDACT: Setting<Vec<String>> = Setting {
    key: "web.redact",
    about: "Values of payloads, results and records whose names contain one of these words are shown only to the role operate.",
    default: "`password, token, secret, authorization, api_key`",
    flag: "",
    env: &["STARGATE_REDACT"],
    read: read_list,
    check: any,
    show: |words| if words.is_empty() { "nothing".to_owned() } else { words.join(", ") },
};

pub(in crate::config) fn read_rate_limit(text: &str) -> Result<Option<RateLimit>, String> {
    if text.trim() == "off" {
        return Ok(None);
    }
    let wrong = || format!("{text:?} is not a rate; write 100/s, 1000/m or off");
    let rate: Rate = text.trim().parse().map_err(|_| wrong())?;
    let count = NonZeroU32::new(rate.count).ok_or_else(wrong)?;
    Ok(Some(RateLimit {
        count,
        per: rate.per,
        burst: count.saturating_mul(NonZeroU32::MIN.saturating_add(1)),
    }))
}

fn show_rate_limit(limit: &Option<RateLimit>) -> String {
    match limit {
        Some(limit) => Rate { count: limit.count.get(), per: limit.per }.to_string(),
        None => "off".to_owned(),
    }
}

fn check_base_path(path: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._~/-".contains(c);
    let parts_fit = || path.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..");
    let is_path =
        path.starts_with('/') && path.chars().all(fits) && path.len() <= BASE_PATH_MAX && parts_fit();
    let taken = ["/api", "/git", "/healthz", "/readyz", "/metrics"];
    match path.is_empty() || (is_path && !taken.contains(&path)) {
        true => Ok(()),
        false => Err(format!("is {path:?}; write it as /stargate: a slash first, none at the end")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_gives_twice_as_many_at_once_and_off_none() {
        let limit = read_rate_limit("100/s").unwrap().unwrap();
        assert_eq!((limit.count.get(), limit.burst.get(), limit.per.as_secs()), (100, 200, 1));
        assert_eq!(show_rate_limit(&Some(limit)), "100/s");
        assert_eq!(read_rate_limit("off").unwrap(), None);
        for wrong in ["", "100", "0/s", "-1/s", "many"] {
            assert!(read_rate_limit(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_sub_path_begins_with_a_slash_and_ends_without() {
        for good in ["", "/x", "/a/b-c_d.e"] {
            assert_eq!(check_base_path(good), Ok(()), "{good}");
        }
        for bad in ["/", "x", "/x/", "//x", "/a//b", "/a/../b", "/ä", "/a b", "/a?b", "/{x}", "/api", "/git"]
        {
            assert!(check_base_path(bad).is_err(), "{bad}");
        }
    }
}
