-- rebase.lua: subtract the lowest count from all.
-- KEYS[1] zset  eligible members, score = allocations so far; of a member with ?weight=w, allocations / w
-- KEYS[2] hash  members set aside: their counts too, down to 0
-- KEYS[6] zset  eligible members that catch up slowly: theirs too, down to 0
-- Returns {what was subtracted, from how many members of KEYS[1]}, both strings. The lowest itself, where it is whole; or the
--         next whole number below, or weighted members would be left with a part of an allocation. Infinite counts, which
--         another tool has written, are passed over and stay
-- Writes  every count, unless there is nothing to subtract.  Cost  O(n log n), n members, during which Redis does nothing else
-- Longest run seen on 100,000 members (Redis 7.0, a shared 2-core VM): 0.28 s, and as much more as decay.lua with others set aside

local lowest = redis.call('ZRANGEBYSCORE', KEYS[1], '(-inf', '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local base = math.floor(tonumber(lowest[2]) or 0)
if base == 0 then
  return {'0', tostring(redis.call('ZCARD', KEYS[1]))}
end
local function without_base(member, score)
  local weight = weight_of(member)
  if weight == 1 then
    return score - base
  end
  local count = math.floor(score * weight + 0.5) - base * weight
  -- Not so (infinite, or no number), one of the two is beyond what a double holds.
  return math.abs(count) < math.huge and count / weight or score - base
end
local function at_least_0(member, score)
  return math.max(0, without_base(member, score))
end
local members = change_scores(KEYS[1], without_base)
change_scores(KEYS[6], at_least_0)
change_records(KEYS[2], at_least_0)
return {string.format('%.0f', base), string.format('%.0f', members)}
