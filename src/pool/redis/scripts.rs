//! The scripts of `lua/`, each with the parts in front that it shares with others.

use std::sync::LazyLock;

use fred::types::scripts::Script;

macro_rules! script {
    ($name:ident = $($file:literal),+) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::from_lua(concat!($(include_str!(concat!("../../../lua/", $file, ".lua"))),+))
        });
    };
}

script!(ALLOCATE = "allocate");
/// The one script that calls another: under "ramp", choosing the least-used is only a part of it.
pub(super) static RAMP: LazyLock<Script> = LazyLock::new(|| {
    Script::from_lua(concat!(
        "local function allocate(KEYS, ARGV)\n",
        include_str!("../../../lua/allocate.lua"),
        "end\n",
        include_str!("../../../lua/weight.lua"),
        include_str!("../../../lua/ramp.lua"),
    ))
});
script!(GIVE_BACK = "weight", "give_back");
script!(COUNT = "weight", "count");
script!(ADD = "weight", "start", "join", "add");
script!(REMOVE = "take_out", "remove");
script!(PARK = "clock", "record", "set_aside", "park");
script!(BAN = "clock", "record", "set_aside", "ban");
script!(BAN_FOR = "clock", "ban_for");
script!(UNBAN_FOR = "unban_for");
script!(SPREAD = "clock", "weight", "spread");
script!(HOSTS = "clock", "hosts");
script!(CHOOSE_FOR = "clock", "weight", "unbanned", "choose_for");
/// Under "ramp", choosing for a host is a part of it as well.
pub(super) static RAMP_FOR: LazyLock<Script> = LazyLock::new(|| {
    Script::from_lua(concat!(
        include_str!("../../../lua/clock.lua"),
        include_str!("../../../lua/weight.lua"),
        include_str!("../../../lua/unbanned.lua"),
        "local allocate\nlocal function ramp(KEYS, ARGV)\n",
        include_str!("../../../lua/ramp.lua"),
        "end\n",
        include_str!("../../../lua/ramp_for.lua"),
    ))
});
script!(RESTORE = "weight", "start", "record", "bring_back", "restore");
script!(RESTORE_DUE = "clock", "weight", "start", "record", "bring_back", "restore_due");
script!(DECAY = "clock", "weight", "every_count", "decay");
script!(REBASE = "weight", "every_count", "rebase");
script!(FORGIVE = "forgive");
script!(REPORT = "clock", "weight", "start", "record", "set_aside", "bring_back", "health", "report");
script!(TRY = "clock", "weight", "record", "try");
script!(LOOK = "clock", "look");
script!(ENROLL = "clock", "enroll");
script!(CLAIM = "clock", "claim");
script!(CHECKED = "clock", "weight", "start", "record", "set_aside", "bring_back", "health", "checked");
script!(STANDING = "standing");
script!(PROPOSE = "clock", "nominate", "propose");
script!(ACCEPT = "weight", "start", "accept");
script!(REJECT = "clock", "reject");
script!(CLAIM_CANDIDATES = "clock", "claim_candidates");
script!(JUDGED = "clock", "weight", "start", "judged");
script!(TALLY = "tally");
script!(BEGIN_READING = "begin_reading");
script!(TAKE = "clock", "weight", "start", "join", "nominate", "take");
script!(DROP = "take_out", "drop");
script!(ACQUIRE = "weight", "in_flight", "acquire");
// Where a request is for a host that has banned members.
script!(ACQUIRE_FOR = "clock", "weight", "in_flight", "unbanned", "acquire");
script!(RELEASE = "weight", "in_flight", "release");
script!(REGISTER = "clock", "weight", "in_flight", "register");
script!(HEARTBEAT = "clock", "weight", "in_flight", "heartbeat");
script!(REAP = "clock", "weight", "in_flight", "reap");
script!(WALK = "clock", "weight", "in_flight", "walk");
