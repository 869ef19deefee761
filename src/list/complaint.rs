//! What servers say instead of a list, with a status that claims success: a web page, an object that reports an error, a
//! sentence. An address and a port in it may be those of the client, of the server, of whoever helps.

use serde_json::{Map, Value};

use super::json;

/// Objects in objects that are looked into.
const MAX_DEPTH: usize = 4;

/// Keys that are there when something went wrong, in lower case without `_` and `-`,
const ERRORS: [&str; 12] = [
    "error",
    "errors",
    "err",
    "errorcode",
    "errormessage",
    "errormsg",
    "errordescription",
    "errordetail",
    "exception",
    "failure",
    "fault",
    "throttled",
];
/// that say whether it did,
const SUCCESSES: [&str; 4] = ["success", "succeeded", "issuccess", "ok"];
/// or how it went,
const STATES: [&str; 7] = ["status", "state", "result", "code", "statuscode", "httpcode", "httpstatus"];
/// and sentences, which may also stand beside a list.
const SENTENCES: [&str; 6] = ["message", "msg", "detail", "details", "reason", "hint"];

/// Words of those who refuse something.
const REFUSALS: [&str; 39] = [
    "banned",
    "block",
    "blocked",
    "captcha",
    "denied",
    "disabled",
    "error",
    "errors",
    "exceeded",
    "exception",
    "expired",
    "fail",
    "failed",
    "failure",
    "fatal",
    "forbidden",
    "illegal",
    "invalid",
    "limit",
    "limited",
    "limits",
    "maintenance",
    "missing",
    "overloaded",
    "quota",
    "refused",
    "rejected",
    "sorry",
    "suspended",
    "throttled",
    "timeout",
    "toomanyrequests",
    "unauthenticated",
    "unauthorised",
    "unauthorized",
    "unavailable",
    "unexpected",
    "unpaid",
    "warning",
];

/// Whether it is markup: a list begins with no tag.
pub(super) fn is_markup(text: &[u8]) -> bool {
    matches!(text, [b'<', next, ..] if next.is_ascii_alphabetic() || b"!?/".contains(next))
}

/// Whether a whole document, of which all is in view, is one value in JSON that reports an error.
pub(super) fn is_report(document: &[u8]) -> bool {
    match serde_json::from_slice(document) {
        Ok(Value::Object(object)) => reports(&object, true, MAX_DEPTH),
        Ok(Value::Array(values)) => match &values[..] {
            [Value::Object(object)] => reports(object, true, MAX_DEPTH),
            _ => false,
        },
        _ => false,
    }
}

/// `may_be_entry`: whether what looks like one proxy can be an error all the same, which has an address with it.
fn reports(object: &Map<String, Value>, may_be_entry: bool, depth: usize) -> bool {
    if !may_be_entry && json::is_entry(object) {
        return false;
    }
    let holds_list = object.values().any(Value::is_array);
    let may_say = !holds_list && !succeeds(object);
    object.iter().any(|(key, value)| {
        let key = normal(key);
        let is = |keys: &[&str]| keys.contains(&&*key);
        (is(&ERRORS) && is_something(value))
            || (is(&SUCCESSES) && is_no(value))
            || (is(&STATES) && is_bad(value))
            || (is(&SENTENCES) && may_say && value.is_string() && is_something(value))
    }) || objects_in(object).any(|inner| {
        // One among others is an entry by its key.
        let is_alone = objects_in(object).count() == 1 && !holds_list;
        depth > 0 && reports(inner, is_alone, depth - 1)
    })
}

fn normal(key: &str) -> String {
    key.to_ascii_lowercase().replace(['_', '-'], "")
}

/// Whether it says so itself.
fn succeeds(object: &Map<String, Value>) -> bool {
    object.iter().any(|(key, value)| SUCCESSES.contains(&&*normal(key)) && value.as_bool() == Some(true))
}

fn objects_in(object: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    object.values().filter_map(Value::as_object)
}

/// What is in a field for errors when there is one.
fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => {
            !["", "0", "false", "no", "none", "null", "ok", "success"].contains(&&*text.trim().to_ascii_lowercase())
        }
        Value::Array(values) => !values.is_empty(),
        Value::Object(object) => !object.is_empty(),
    }
}

fn is_no(value: &Value) -> bool {
    match value {
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => ["0", "false", "no"].contains(&&*text.trim().to_ascii_lowercase()),
        _ => false,
    }
}

/// A status of HTTP for errors, or a word for one.
fn is_bad(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64().is_some_and(|status| (400..600).contains(&status)),
        Value::String(text) => {
            is_refusal(text) || text.trim().parse::<u16>().is_ok_and(|status| (400..600).contains(&status))
        }
        _ => false,
    }
}

/// Whether a line that is all there is reads like a sentence in which something is refused. User names and passwords that are
/// such words stand there without others, or not between blanks.
pub(super) fn is_sentence(line: &str) -> bool {
    line.split_ascii_whitespace().nth(1).is_some() && is_refusal(line)
}

fn is_refusal(text: &str) -> bool {
    let words = text.split_ascii_whitespace().take_while(|word| !word.starts_with('#'));
    let words = words.map(|word| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()));
    words.map(str::to_ascii_lowercase).any(|word| REFUSALS.contains(&&*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_says_that_something_went_wrong_is_no_list() {
        for text in [
            r#"{"success":false,"error":"quota","ip":"203.0.113.9","port":443}"#,
            r#"{"error":{"code":7},"host":"h:443"}"#,
            r#"{"error":{"ip":"203.0.113.9","port":443}}"#,
            r#"{"message":"Too many requests","ip":"203.0.113.9","port":443}"#,
            r#"{"Status":"error","ip":"203.0.113.9","port":443}"#,
            r#"{"status":429,"ip":"203.0.113.9","port":443}"#,
            r#"{"status":{"error_code":1002,"credits":0},"data":[]}"#,
            r#"{"meta":{"success":false},"data":[]}"#,
            r#"{"success":0,"data":[]}"#,
            r#"{"errors":[{"message":"no","ip":"203.0.113.9","port":443}]}"#,
            r#"{"response":{"ok":false,"ip":"203.0.113.9","port":443}}"#,
            r#"[{"error":"quota","ip":"203.0.113.9","port":443}]"#,
            r#"{"code":"403","ip":"203.0.113.9","port":"443"}"#,
        ] {
            assert!(is_report(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_list_may_say_that_nothing_went_wrong() {
        for text in [
            r#"{"ip":"10.0.0.1","port":80,"error":null,"success":true,"status":"online"}"#,
            r#"{"ip":"10.0.0.1","port":80,"code":"DE","status":200,"message":""}"#,
            r#"{"success":true,"message":"one proxy found","ip":"10.0.0.1","port":80}"#,
            r#"{"message":"OK","ip":"10.0.0.1","port":80}"#,
            r#"{"success":true,"error":"","errors":[],"message":"3 proxies","data":[{"ip":"10.0.0.1","port":80}]}"#,
            r#"{"status":{"error_code":0,"error_message":null},"data":["10.0.0.1:80"]}"#,
            r#"{"a":{"ip":"10.0.0.1","port":80,"error":"timeout"},"b":{"ip":"10.0.0.2","port":80}}"#,
            r#"[{"ip":"10.0.0.1","port":80,"error":"timeout"},{"ip":"10.0.0.2","port":80,"error":"timeout"}]"#,
            r#"{"proxies":[{"ip":"10.0.0.1","port":80,"success":false}]}"#,
            r#"["10.0.0.1:80"]"#,
            "[]",
            "{}",
            "null",
            "10.0.0.1:80",
        ] {
            assert!(!is_report(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_sentence_of_refusal_is_no_proxy_and_a_login_no_sentence() {
        for text in [
            "Forbidden 403 203.0.113.9:443",
            "203.0.113.9:443 is blocked",
            "Fatal error: connect 203.0.113.9:3306",
            "Rate limit exceeded, ask support.example:443",
        ] {
            assert!(is_sentence(text), "{text}");
        }
        for text in [
            "203.0.113.9:443",
            "203.0.113.9:443:error:limit",
            "error:limit@203.0.113.9:443",
            "203.0.113.9 443",
            "10.0.0.1:80 # no limit",
        ] {
            assert!(!is_sentence(text), "{text}");
        }
    }

    #[test]
    fn markup_begins_with_a_tag() {
        for text in ["<p>", "<!-- x", "<?php", "</div>", "<HTML>"] {
            assert!(is_markup(text.as_bytes()), "{text}");
        }
        for text in ["", "<", "<10.0.0.1:80>", "10.0.0.1:80 <p>"] {
            assert!(!is_markup(text.as_bytes()), "{text}");
        }
    }
}
