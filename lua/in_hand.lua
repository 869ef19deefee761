-- in_hand.lua: what gateways have in flight through members, all of them read at one moment.
-- KEYS[1..4]   see in_flight.lua
-- KEYS[5..]    what each gateway has in flight
-- ARGV[1..]    members, 1..200
-- Returns an array: "changed", alone, if there are other gateways than these; or "same", and per member two: what is in flight
--         through it, and what the gateways have together
-- Writes  nothing.  Cost  O(k g), k members given, g gateways
-- Redis 7.0 on a shared 2-core VM that others used too, 100,000 members: 200 at once of 8 gateways took 7.6 ms at the longest (2.6 at
-- the median).

local gateways = #KEYS - 4
if redis.call('ZCARD', KEYS[4]) ~= gateways then
  return {'changed'}
end
-- As many may be others: one that was away takes another name.
for i = 1, gateways do
  if not redis.call('ZSCORE', KEYS[4], ARGV[i]) then
    return {'changed'}
  end
end
local members = {unpack(ARGV, gateways + 1)}
local together = {}
for i = 5, #KEYS do
  for at, held in ipairs(redis.call('HMGET', KEYS[i], unpack(members))) do
    together[at] = (together[at] or 0) + (tonumber(held) or 0)
  end
end
local told = {'same'}
for at, flying in ipairs(redis.call('HMGET', KEYS[3], unpack(members))) do
  told[#told + 1] = tostring(flying or 0)
  told[#told + 1] = tostring(together[at] or 0)
end
return told
