-- decay.lua: let all counts shrink by the same share, once per period, whoever calls.
-- KEYS[1] zset   eligible members, score = allocations so far; of a member with ?weight=w, allocations / w
-- KEYS[2] hash   members set aside: their counts shrink with the others
-- KEYS[6] zset   eligible members that catch up slowly, scores as in KEYS[1]
-- KEYS[12] string when counts have shrunk last, in ms by the clock of Redis; without it, the first period begins
-- ARGV[1] keep   what is left of a count, above 0 and below 1
-- ARGV[2]        the period in ms
-- Returns how many periods were due, as a string; "0": nothing was done. Several are made up for in one
-- Writes  every count, rounded down to whole allocations.  Cost  O(n log n), n members, during which Redis does nothing else;
--         O(1) when nothing is due
-- Longest run seen on 100,000 members (Redis 7.0, a shared 2-core VM): 0.24 s, and 0.41 s more with another 100,000 set aside

local keep, period = tonumber(ARGV[1]), tonumber(ARGV[2])
if not keep or keep <= 0 or keep >= 1 or not period or period < 1 then
  return redis.error_reply('ERR decay: needs a share between 0 and 1, and a period in ms')
end
local now = now_ms()
local last = tonumber(redis.call('GET', KEYS[12]))
if not last or last > now then
  redis.call('SET', KEYS[12], string.format('%.0f', now))
  return '0'
end
local periods = math.floor((now - last) / period)
if periods < 1 then
  return '0'
end
redis.call('SET', KEYS[12], string.format('%.0f', last + periods * period))

local factor = keep ^ periods
-- Whole allocations: scores with fractions would all be different, and giving back would not be exact. A little more, because
-- the product of what is meant to be a whole number may be a little less.
local function shrunk(member, score)
  local weight = weight_of(member)
  local count = math.floor(score * weight * factor + 1e-6)
  -- Not so (infinite, or no number), the product is beyond what a double holds.
  return math.abs(count) < math.huge and count / weight or score * factor
end
change_scores(KEYS[1], shrunk)
change_scores(KEYS[6], shrunk)
change_records(KEYS[2], shrunk)
return string.format('%.0f', periods)
