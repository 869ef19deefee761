-- add.lua: put members into the set that are not there yet; who is there keeps its count.
-- KEYS[1] zset  eligible members, score = allocations so far; of a member with ?weight=w, allocations / w
-- KEYS[2] hash  members set aside: these stay so
-- KEYS[4] zset  candidates: one that is added is none any more
-- KEYS[6] zset  eligible members that catch up slowly, scores as in KEYS[1]
-- KEYS[7] zset  the same members, score = the turn at which each may be chosen next
-- ARGV[1] start "min", "median" or "max" (of the scores before this call, 0 when there are none) or a score; each member
--               starts at the next one that a whole number of its allocations gives. Or "ramp": at 0, and if that is
--               behind, among those who catch up slowly
-- ARGV[2..]     members
-- Returns {how many were new, the start they were given}, both strings; the start serves the next call for the same list
-- Writes  one or two ZADD and one ZREM per member.  Cost  O(k log m), k members given, m in the set

local set, parked, candidates, policy = KEYS[1], KEYS[2], KEYS[4], ARGV[1]
local start = start_of(policy, set)
if start and not is_number(start) then
  return redis.error_reply('ERR add: the start must be "min", "median", "max", "ramp" or a number')
end

-- Mostly there are none, and then nobody is looked up.
local has_parked = redis.call('EXISTS', parked) == 1
local has_candidates = redis.call('EXISTS', candidates) == 1
local added = 0
for i = 2, #ARGV do
  local member = ARGV[i]
  if not has_parked or redis.call('HEXISTS', parked, member) == 0 then
    added = added + enter(member, policy == 'ramp' and 0 or placed(member, start or 0), policy, start)
    if has_candidates then
      redis.call('ZREM', candidates, member)
    end
  end
end
return {tostring(added), policy == 'ramp' and policy or start or '0'}
