//! `evenkeel pool verify`: what was found, for eyes and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::listing::{digits, whole};
use crate::config::Config;
use crate::member;
use crate::pool::verify::{Context, Finding, Numbers, Verdict};
use crate::server;

/// So many members are named of each finding in the text.
const SHOWN: usize = 3;

/// `gateways`: how many share the pool.
pub(super) fn context(config: &Config, gateways: usize) -> Context {
    Context {
        policy: config.pool.policy,
        prefetch: config.pool.prefetch.count,
        workers: gateways * server::workers(&config.gateway),
        decays: config.pool.decay.is_some(),
        initial: config.pool.initial,
        restore: config.pool.restore,
    }
}

pub(super) fn print(verdict: &Verdict, json: bool) -> Vec<u8> {
    if json { format!("{:#}\n", as_json(verdict)).into_bytes() } else { text(verdict).into_bytes() }
}

fn as_json(verdict: &Verdict) -> Value {
    let findings = verdict.findings.iter().map(|finding| {
        let members = finding.shown().map(|(id, proxy)| json!({"id": id, "proxy": proxy}));
        json!({"what": finding.rule.word(), "is_wrong": finding.rule.is_wrong(), "sentence": finding.sentence,
            "count": finding.count, "members": members.collect::<Vec<_>>()})
    });
    let score = |score: f64| if score.is_finite() { whole(score) } else { score.to_string().into() };
    let lowest = verdict.lowest.iter().map(|entry| {
        json!({"id": member::id(&entry.member), "proxy": member::masked(&entry.member), "score": score(entry.count)})
    });
    let Numbers { eligible, weighted, ramping, parked, candidates } = verdict.numbers;
    json!({
        "sound": verdict.is_sound(),
        "members": {"eligible": eligible, "weighted": weighted, "ramping": ramping, "parked": parked,
            "candidates": candidates},
        "lowest": verdict.scores.map(|(lowest, _)| score(lowest)),
        "highest": verdict.scores.map(|(_, highest)| score(highest)),
        "spread": verdict.scores.map(|(lowest, highest)| score(highest - lowest)),
        "bound": verdict.bound,
        "widened_by": verdict.widened_by,
        "holds": verdict.holds(),
        "ahead": verdict.ahead,
        "until_level": score(verdict.until_level),
        "causes": verdict.causes,
        "behind": lowest.collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn text(verdict: &Verdict) -> String {
    let Numbers { eligible, weighted, ramping, parked, candidates } = verdict.numbers;
    let mut text = format!("members  {eligible} eligible");
    for (count, what) in [
        (weighted, "of them with a weight"),
        (ramping, "catching up"),
        (parked, "set aside"),
        (candidates, "candidates"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    if let Some((lowest, highest)) = verdict.scores {
        let _ =
            write!(text, "\ncounts   {} to {}, {} apart", digits(lowest), digits(highest), digits(highest - lowest));
    }
    let _ = match verdict.bound {
        Some(bound) => writeln!(text, "\nbound    {bound} between members that began level, and without retries"),
        None => {
            writeln!(text, "\nbound    none: least-concurrent goes by counts only among members with as many in flight")
        }
    };
    for part in &verdict.widened_by {
        let _ = writeln!(text, "         {part}");
    }
    if verdict.holds() {
        text += if verdict.bound.is_some() { "holds    yes\n" } else { "" };
    } else {
        let _ = writeln!(
            text,
            "holds    no: {} of {eligible} are further ahead of the lowest; after {} allocations all are level",
            verdict.ahead,
            digits(verdict.until_level)
        );
        let lowest: Vec<String> = verdict
            .lowest
            .iter()
            .map(|entry| {
                format!("{} {} ({})", member::id(&entry.member), member::masked(&entry.member), digits(entry.count))
            })
            .collect();
        let _ = writeln!(text, "lowest   {}", lowest.join(", "));
        for cause in &verdict.causes {
            let _ = writeln!(text, "perhaps  {cause}");
        }
    }
    for finding in &verdict.findings {
        let _ = writeln!(text, "{:<8} {}", if finding.rule.is_wrong() { "wrong" } else { "note" }, sentence(finding));
    }
    if verdict.is_sound() {
        text += "sound    nothing is wrong\n";
    }
    text
}

fn sentence(finding: &Finding) -> String {
    if finding.count == 0 {
        return finding.sentence.clone();
    }
    let mut shown: Vec<String> = finding.shown().take(SHOWN).map(|(id, proxy)| format!("{id} {proxy}")).collect();
    if finding.count > shown.len() as u64 {
        shown.push("…".to_owned());
    }
    format!("{} × {}: {}", finding.count, finding.sentence, shown.join(", "))
}
