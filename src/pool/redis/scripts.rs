//! The scripts of `lua/`, each with the parts in front that it shares with others.

use std::sync::LazyLock;

use fred::types::scripts::Script;

/// A file of `lua/`, or in braces a line between two of them.
macro_rules! piece {
    ($file:literal) => {
        include_str!(concat!("../../../lua/", $file, ".lua"))
    };
    ({ $line:literal }) => {
        $line
    };
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $($piece:tt),+;)+) => {
        $($(#[$doc])* pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::from_lua(concat!($(piece!($piece)),+)));)+

        /// All of them, by these names.
        static ALL: &[(&str, &LazyLock<Script>)] = &[$((stringify!($name), &$name)),+];
    };
}

/// See [`super::scripts()`].
pub(super) fn digests() -> impl Iterator<Item = (String, String)> {
    ALL.iter().map(|(name, script)| (name.to_lowercase(), script.sha1().to_string()))
}

scripts! {
    ALLOCATE = "allocate";
    /// The one script that calls another: under "ramp", choosing the least-used is only a part of it.
    RAMP = {"local function allocate(KEYS, ARGV)\n"}, "allocate", {"end\n"}, "weight", "ramp";
    GIVE_BACK = "weight", "eligible", "give_back";
    COUNT = "weight", "eligible", "count";
    ADD = "weight", "start", "join", "add";
    REMOVE = "take_out", "remove";
    PARK = "clock", "record", "set_aside", "park";
    BAN = "clock", "record", "set_aside", "changes", "ban";
    BAN_FOR = "clock", "hosts_known", "ban_for";
    UNBAN_FOR = "clock", "hosts_known", "unban_for";
    SPREAD = "clock", "weight", "spread";
    HOSTS = "clock", "hosts_known", "hosts";
    CHOOSE_FOR = "clock", "weight", "unbanned", "choose_for";
    /// Under "ramp", choosing for a host is a part of it as well.
    RAMP_FOR = "clock", "weight", "unbanned", {"local allocate\nlocal function ramp(KEYS, ARGV)\n"}, "ramp", {"end\n"}, "ramp_for";
    RESTORE = "weight", "start", "record", "bring_back", "restore";
    RESTORE_DUE = "clock", "weight", "start", "record", "bring_back", "restore_due";
    DECAY = "clock", "weight", "every_count", "decay";
    REBASE = "weight", "every_count", "rebase";
    FORGIVE = "forgive";
    REPORT = "clock", "weight", "start", "record", "set_aside", "bring_back", "changes", "health", "report";
    TRY = "clock", "weight", "record", "try";
    LOOK = "clock", "look";
    ENROLL = "clock", "enroll";
    CLAIM = "clock", "claim";
    CHECKED = "clock", "weight", "start", "record", "set_aside", "bring_back", "changes", "health", "checked";
    STANDING = "standing";
    IN_HAND = "in_hand";
    PROPOSE = "clock", "nominate", "propose";
    ACCEPT = "weight", "start", "accept";
    REJECT = "clock", "reject";
    CLAIM_CANDIDATES = "clock", "claim_candidates";
    JUDGED = "clock", "weight", "start", "judged";
    TALLY = "tally";
    FORGET = "forget";
    BEGIN_READING = "begin_reading";
    TAKE = "clock", "weight", "start", "join", "nominate", "take";
    DROP = "take_out", "drop";
    ACQUIRE = "weight", "in_flight", "acquire";
    /// Where a request is for a host that has banned members.
    ACQUIRE_FOR = "clock", "weight", "in_flight", "unbanned", "acquire";
    RELEASE = "weight", "in_flight", "release";
    REGISTER = "clock", "weight", "in_flight", "register";
    HEARTBEAT = "clock", "weight", "in_flight", "heartbeat";
    REAP = "clock", "weight", "in_flight", "reap";
    WALK = "clock", "weight", "in_flight", "walk";
}
