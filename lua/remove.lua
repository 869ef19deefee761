-- remove.lua: take members out, in whatever state they are.
-- KEYS[1] zset  eligible members
-- KEYS[2] hash  members set aside
-- KEYS[3] zset  members set aside that return by themselves
-- KEYS[4] zset  candidates
-- KEYS[5] hash  how often in a row members were set aside that are back
-- KEYS[6] zset  eligible members that catch up slowly
-- KEYS[7] zset  the same members, score = the turn at which each may be chosen next
-- KEYS[9] zset  eligible members that failed their last requests
-- KEYS[10] zset  members set aside for failing, that wait for a trial
-- KEYS[11] zset  when to check members
-- ARGV[1..]     members
-- Returns how many were there, as a string
-- Writes  one deletion per key and member.  Cost  O(k log m), k members given, m in the largest key

local set, parked, returns, candidates, streaks, ramping, turns = unpack(KEYS)
local failures, trials, checks = KEYS[9], KEYS[10], KEYS[11]
local removed = 0
for i = 1, #ARGV do
  local member = ARGV[i]
  local found = redis.call('ZREM', set, member)
    + redis.call('HDEL', parked, member)
    + redis.call('ZREM', candidates, member)
    + redis.call('ZREM', ramping, member)
  redis.call('ZREM', returns, member)
  redis.call('HDEL', streaks, member)
  redis.call('ZREM', turns, member)
  redis.call('ZREM', failures, member)
  redis.call('ZREM', trials, member)
  redis.call('ZREM', checks, member)
  if found > 0 then
    removed = removed + 1
  end
end
return tostring(removed)
