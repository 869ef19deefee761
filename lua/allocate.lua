-- allocate.lua: take the least-used eligible member, n times.
-- KEYS[1] zset  eligible members, score = allocations so far; of a member with ?weight=w, allocations / w
-- ARGV[1] n     integer, 1..64
-- ARGV[2..]     members this request has tried already (a retry, n = 1): they are skipped
-- Returns an array of members in the order chosen, empty when nobody is left (then nothing was written)
-- Writes  +1 per member returned, or +1/w.  Cost  O(n log m), m members in the set
-- Redis 7.0 on a shared 2-core VM, 100,000 members: 64 at once block it for 0.10 ms, 0.24 with weights of all sizes, and
-- cost 2.3 us of its CPU each (16 at once 4.0, singles pipelined 5.8, a lone call 38); ZRANGE and ZINCRBY 64 times over,
-- twice that. That members may have weights costs those without nothing: beside the script of before there were weights, -2 % of
-- its time for singles, -2 to +1 % at 16, +1 % at 64.

local key, n = KEYS[1], tonumber(ARGV[1])
if not n or n < 1 or n > 64 or n % 1 ~= 0 then
  return redis.error_reply('ERR allocate: n must be a whole number from 1 to 64')
end
if n > 1 and #ARGV > 1 then
  return redis.error_reply('ERR allocate: members to skip go with n = 1 only')
end

local find = string.find
-- Mostly nobody has a weight, and this is all.
if n == 1 and #ARGV == 1 then
  local member = redis.call('ZRANGE', key, 0, 0)[1]
  if not member then
    return {}
  elseif not find(member, 'weight=', 1, true) then
    redis.call('ZINCRBY', key, 1, member)
    return {member}
  end
end

-- The score with one allocation more. Of a member with a weight (1..1000, an option in the query of its last hop) by way of
-- the number of allocations, which is whole: adding 1/w would drift. From 2^50 on, one more is the same number.
local function raised(member, score)
  local query = string.match(member, '%?([^?@|/]*)$')
  local weight = query and tonumber(string.match('&' .. query .. '&', '&weight=(%d+)&'))
  if not weight or weight < 2 or weight > 1000 then
    return score + 1
  end
  local count = math.floor(score * weight + 0.5)
  return math.abs(count) < 2 ^ 50 and (count + 1) / weight or score
end

if n == 1 then
  local tried = {}
  for i = 2, #ARGV do
    tried[ARGV[i]] = true
  end
  -- One more than were tried: when all before it were, the last one was not.
  for _, member in ipairs(redis.call('ZRANGE', key, 0, #ARGV - 1)) do
    if not tried[member] then
      if find(member, 'weight=', 1, true) then
        redis.call('ZADD', key, raised(member, tonumber(redis.call('ZSCORE', key, member))), member)
      else
        redis.call('ZINCRBY', key, 1, member)
      end
      return {member}
    end
  end
  return {}
end

-- Run by run: single calls too take one after the other from the front, as long as the next has a lower score than all
-- those have now that were taken. So these are raised together, in one ZADD, and the next round reads the set again: who
-- comes first among equals is Redis' decision alone (Lua compares strings by locale). Without weights, and with all
-- scores within 1 of each other, a run is a whole level.
local chosen, count = {}, 0
while count < n do
  local lowest = redis.call('ZRANGE', key, 0, n - count - 1, 'WITHSCORES')
  local last = #lowest
  if last == 0 then
    break
  end
  local text, score, above, limit
  for i = 1, last, 2 do
    local member = lowest[i]
    if lowest[i + 1] ~= text then
      text = lowest[i + 1]
      score = tonumber(text)
      if limit and score >= limit then
        last = i - 1
        break
      end
      above = score + 1
      -- Those that come later without a weight have more.
      limit = limit or above
    end
    local now = above
    if find(member, 'weight=', 1, true) then
      now = raised(member, score)
      limit = math.min(limit, now)
    end
    count = count + 1
    chosen[count] = member
    -- What was read becomes what is written: another table would grow anew each time.
    lowest[i], lowest[i + 1] = now, member
    -- From 2^53 on, and at +-inf, adding 1 changes nothing: the first stays first however often it is taken.
    if now == score then
      if i == 1 then
        for j = count + 1, n do
          chosen[j] = member
        end
        return chosen
      end
      last = i + 1
      break
    end
  end
  redis.call('ZADD', key, unpack(lowest, 1, last))
end
return chosen
