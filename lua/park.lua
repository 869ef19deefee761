-- park.lua: set a member aside; it leaves the set and keeps its count and the reason.
-- KEYS[1] zset  eligible members, score = allocations so far
-- KEYS[2] hash  member -> {"count":…,"reason":…,"since_ms":…}, since_ms by the clock of Redis
-- ARGV[1]       member
-- ARGV[2]       reason, a sentence in UTF-8
-- Returns "1", or "0" when the member is not in the set (then nothing was written)
-- Writes  one HSET, one ZREM.  Cost  O(log m), m members in the set

local member, reason = ARGV[1], ARGV[2]
if not member or not reason then
  return redis.error_reply('ERR park: needs a member and a reason')
end
local count = redis.call('ZSCORE', KEYS[1], member)
if not count then
  return '0'
end
-- JSON has no infinity; every other score stays the digits Redis prints, which cjson would cut to 14.
if math.abs(tonumber(count)) == math.huge then
  count = cjson.encode(count)
end
local now = redis.call('TIME')
local since = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000))
local record = '{"count":' .. count .. ',"reason":' .. cjson.encode(reason) .. ',"since_ms":' .. since .. '}'

-- The hash first: of the two only HSET can fail (no memory, wrong type), and an error rolls nothing back.
redis.call('HSET', KEYS[2], member, record)
redis.call('ZREM', KEYS[1], member)
return '1'
