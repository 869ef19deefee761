-- restore_due.lua: bring members back whose time is up. How often in a row they were set aside is remembered.
-- KEYS[1] zset  eligible members, score = allocations so far
-- KEYS[2] hash  members set aside
-- KEYS[3] zset  members set aside that return by themselves, score = when, in ms by the clock of Redis
-- KEYS[5] hash  how often in a row members were set aside that are back
-- KEYS[6] zset  eligible members that catch up slowly, scores as in KEYS[1]
-- KEYS[7] zset  the same members, score = the turn at which each may be chosen next
-- ARGV[1]       the count they return with, as for restore.lua
-- ARGV[2] n     look at no more than this many, 1..1000
-- ARGV[3]       "ramps" where gateways choose those of KEYS[6]; where they do not (any more), these join the set
-- Returns an array of those that are back, who was due first in front
-- Writes  one command per key and member.  Cost  O(n log m), m members in the largest key; O(1) when nobody is due
-- Longest run seen on 100,000 members (Redis 7.0, a shared 2-core VM): 1.7 ms for 100, 19 ms for 1,000

local policy, n, ramps = ARGV[1], tonumber(ARGV[2]), ARGV[3] == 'ramps'
if not n or n < 1 or n > 1000 or n % 1 ~= 0 then
  return redis.error_reply('ERR restore_due: n must be a whole number from 1 to 1000')
end
local left = not ramps and redis.call('ZRANGE', KEYS[6], 0, n - 1, 'WITHSCORES') or {}
local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now_ms(), 'LIMIT', 0, n)
if #due == 0 and #left == 0 then
  return {}
end
local start = start_of(policy, KEYS[1])
if start and not is_number(start) then
  return redis.error_reply('ERR restore_due: the count must be "keep", "min", "median", "max", "ramp" or a number')
end
for i = 1, #left, 2 do
  local count = tonumber(left[i + 1])
  if start then
    count = math.max(count, placed(left[i], start))
  end
  redis.call('ZADD', KEYS[1], 'NX', count, left[i])
  redis.call('ZREM', KEYS[6], left[i])
  redis.call('ZREM', KEYS[7], left[i])
end
local restored = {}
for _, member in ipairs(due) do
  if bring_back(member, policy, start, true) then
    restored[#restored + 1] = member
  end
end
return restored
