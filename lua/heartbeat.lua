-- heartbeat.lua: a gateway is alive, and hears who is not.
-- KEYS[1..4]    see in_flight.lua
-- ARGV[1] gateway
-- ARGV[2] lifetime    ms until it lapses unless this comes again
-- Returns {state, gateway...}: at most 16 that have lapsed, to be reaped. state: "ok"; "behind", KEY:load was, and maybe still is
--   (walk.lua mends that); "lapsed", alone, the gateway is not registered (any more): it was believed dead, or Redis has lost its
--   data
-- Writes  one ZADD, and the places of the least used in KEY:load, where others have changed KEY
-- Cost    O(64 log m + log g), m members in the set, g gateways
-- Redis 7.0 on a shared 2-core VM, 100,000 members: 0.7 ms at the longest (0.1 at the median).

local gateway, lifetime = ARGV[1], tonumber(ARGV[2])
if not lifetime then
  return redis.error_reply('ERR heartbeat: needs a gateway and a lifetime')
end
local until_ms, now = lifetime_of(gateway), now_ms()
if until_ms == 0 then
  return {'lapsed'}
end
redis.call('ZADD', GATEWAYS, now + lifetime, gateway)
local reply = {follow() == 0 and is_complete() and 'ok' or 'behind'}
-- Whoever is late himself cannot tell whether others are dead, or Redis was away from all.
if until_ms >= now then
  for _, lapsed in ipairs(redis.call('ZRANGEBYSCORE', GATEWAYS, '-inf', '(' .. now, 'LIMIT', 0, 16)) do
    reply[#reply + 1] = lapsed
  end
end
return reply
