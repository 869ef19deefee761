-- propose.lua: note members that are to be looked at before they may enter the set.
-- KEYS[1] zset  eligible members
-- KEYS[2] hash  members set aside
-- KEYS[4] zset  candidates, score = when to look at them, in ms by the clock of Redis: now
-- KEYS[6] zset  eligible members that catch up slowly
-- ARGV[1..]     members
-- Returns how many were in no state before, as a string; others stay what they are
-- Writes  one ZADD NX per member.  Cost  O(k log m), k members given, m in the largest key

local set, parked, candidates, ramping = KEYS[1], KEYS[2], KEYS[4], KEYS[6]
local now = now_ms()
local proposed = 0
for i = 1, #ARGV do
  local member = ARGV[i]
  local is_eligible = redis.call('ZSCORE', set, member) or redis.call('ZSCORE', ramping, member)
  if not is_eligible and redis.call('HEXISTS', parked, member) == 0 then
    proposed = proposed + redis.call('ZADD', candidates, 'NX', now, member)
  end
end
return tostring(proposed)
