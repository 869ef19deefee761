-- accept.lua: put candidates into the set.
-- KEYS[1] zset  eligible members, score = allocations so far; of a member with ?weight=w, allocations / w
-- KEYS[4] zset  candidates
-- ARGV[1] start as for add.lua
-- ARGV[2..]     members
-- Returns {how many were candidates and are now eligible, the start they were given}, both strings
-- Writes  one ZADD NX and one ZREM per candidate.  Cost  O(k log m), k members given, m in the largest key

local set, candidates = KEYS[1], KEYS[4]
local start = start_of(ARGV[1], set) or '0'
if not is_number(start) then
  return redis.error_reply('ERR accept: the start must be "min", "median", "max" or a number')
end
local accepted = 0
for i = 2, #ARGV do
  local member = ARGV[i]
  -- Who was rejected or removed meanwhile stays out.
  if redis.call('ZSCORE', candidates, member) then
    accepted = accepted + redis.call('ZADD', set, 'NX', placed(member, start), member)
    redis.call('ZREM', candidates, member)
  end
end
return {tostring(accepted), start}
